"""The load client against a server with a known schedule and known faults: every request has its true record."""

from __future__ import annotations

import io
import itertools
import json
import random
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError
from stub_server import FIRST_TOKEN_S, INPUT_TOKENS, StubServer

from servelab import schemas
from servelab.clients import CLIENTS
from servelab.errors import ServelabError
from servelab.load import LoadPlan
from servelab.load.arrivals import arrival_times
from servelab.load.board import Board, Totals
from servelab.load.clock import ClockDifference
from servelab.load.exchange import NO_STAMP
from servelab.load.loop import resolve
from servelab.load.progress import LoadProgress
from servelab.load.sender import ERRORS, run_load
from servelab.load.stream import read_answer

OUTPUT_TOKENS = 6


@pytest.fixture
def stub():
    return StubServer()


@pytest.fixture
def server(stub):
    with stub.running() as base_url:
        yield base_url


def write_requests(path: Path, prompts: list, phase: str = "measured", arrival_s: list | None = None) -> Path:
    rows = [
        {
            "request_index": index,
            "phase": phase,
            "prompt": prompt if isinstance(prompt, str) else None,
            "prompt_token_ids": None if isinstance(prompt, str) else prompt,
            "input_tokens": 5,
            "output_tokens": OUTPUT_TOKENS,
            "arrival_s": arrival_s[index] if arrival_s else None,
        }
        for index, prompt in enumerate(prompts)
    ]
    pq.write_table(pa.Table.from_pylist(rows, schema=schemas.WORKLOAD_REQUESTS), path)
    return path


def load(tmp_path: Path, base_url: str, prompts: list, **settings) -> list[dict]:
    requests = write_requests(tmp_path / "requests.parquet", prompts)
    plan = LoadPlan(**{"base_url": base_url, "endpoint": "chat", "model": "m", "requests": requests} | settings)
    records, _ = run_load(plan)
    assert records.schema.equals(schemas.RUN_REQUESTS)
    assert records["request_index"].to_pylist() == list(range(len(prompts)))
    return records.to_pylist()


def arrivals(count: int, recorded_s: list[float] | None = None, **settings) -> list[float]:
    plan = LoadPlan(base_url="http://127.0.0.1:1", endpoint="chat", model="m", requests="r.parquet", **settings)
    return arrival_times(plan, count, recorded_s)


SUCCESSES = {
    "normal": OUTPUT_TOKENS,
    "plain_completion_events_split_and_joined": OUTPUT_TOKENS,
    "several_tokens_an_event": OUTPUT_TOKENS // 2,
    "reasoning_first": OUTPUT_TOKENS,
    "ended_by_close": OUTPUT_TOKENS,
    "looks_ended": OUTPUT_TOKENS,
    "trailers": OUTPUT_TOKENS,
    "one_byte_pieces": OUTPUT_TOKENS,
    "sized": OUTPUT_TOKENS,
    "stays_open": OUTPUT_TOKENS,
}

FAULTS = {
    "too_short": (200, "output_length: 5 tokens instead of 6"),
    "no_usage": (200, "no_usage"),
    "no_done": (200, "no_done"),
    "broken_event": (200, 'broken_event: {"choices": [{]}'),
    "odd_event": (200, "broken_event: 3"),
    "error_event": (200, "server_error: out of memory"),
    "early_close": (200, "closed_early"),
    "reset": (200, "closed_early"),
    "refused": (None, "closed_early"),
    "stall": (200, "request_timeout: unfinished after 2 s"),
    "silence": (None, "request_timeout"),
    "status_429": (429, "http_error: 429 too many requests"),
    "status_500": (500, "http_error: 500 Internal Server Error"),
    "not_http": (None, "broken_http"),
    "not_http_and_open": (None, "broken_http"),
    "bad_chunk": (200, "closed_early"),
    "early_answer": (413, "http_error: 413 too long"),
}


@pytest.mark.parametrize("behaviour", SUCCESSES)
def test_success(behaviour, tmp_path, server):
    (record,) = load(tmp_path, server, [behaviour])
    assert record["error"] is None
    assert record["http_status"] == 200
    assert record["chunks"] == SUCCESSES[behaviour]
    assert len(record["chunk_gaps_ms"]) == record["chunks"] - 1
    assert (record["input_tokens"], record["output_tokens"]) == (INPUT_TOKENS, OUTPUT_TOKENS)
    assert (record["input_tokens_asked"], record["output_tokens_asked"]) == (5, OUTPUT_TOKENS)
    assert record["finish_reason"] == "length"
    times = [record[name] for name in ("scheduled_s", "sent_s", "first_token_s", "last_token_s", "end_s")]
    assert times == sorted(times)
    assert record["scheduled_s"] <= record["started_s"] <= record["sent_s"]
    assert sum(record["chunk_gaps_ms"]) == pytest.approx(1000 * (times[3] - times[2]), rel=1e-5)


@pytest.mark.parametrize("behaviour", FAULTS)
def test_fault_has_a_record_and_harms_no_other_request(behaviour, tmp_path, server):
    prompts = [behaviour, "normal", behaviour, "normal"]
    records = load(tmp_path, server, prompts, request_timeout_s=2.0)
    status, error = FAULTS[behaviour]
    assert records[1]["unread_ms"] >= 0
    for record in records[0::2]:
        assert record["error"].startswith(error)
        assert record["error"].split(":")[0] in ERRORS
        assert record["http_status"] == status
        assert record["end_s"] >= record["sent_s"]
    assert [record["error"] for record in records[1::2]] == [None, None]


def test_no_server(tmp_path):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        records = load(tmp_path, f"http://127.0.0.1:{unused.getsockname()[1]}", ["normal"] * 3)
    for record in records:
        assert record["error"].startswith("connect_failed")
        assert record["sent_s"] is None
        assert record["end_s"] is not None


def test_round_timeout_ends_what_is_running_and_what_was_never_sent(tmp_path, server):
    records = load(tmp_path, server, ["normal", "stall", "normal"], timeout_s=2.0, max_concurrency=1)
    assert [(record["error"] or "success").split(":")[0] for record in records] == [
        "success",
        "round_timeout",
        "round_timeout",
    ]
    assert [record["sent_s"] is None for record in records] == [False, False, True]


def test_first_token_is_never_the_role_event(tmp_path, server):
    # The stub's role event comes after FIRST_TOKEN_S, its first token at least one gap later.
    (record,) = load(tmp_path, server, ["normal"])
    assert record["first_token_s"] - record["sent_s"] > FIRST_TOKEN_S


def test_each_request_has_a_connection_of_its_own(tmp_path, stub, server):
    records = load(tmp_path, server, ["normal"] * 150, max_concurrency=20)
    assert all(record["error"] is None for record in records)
    assert stub.connections == 150


def test_concurrency_is_limited_and_reached(tmp_path, stub, server):
    load(tmp_path, server, ["normal"] * 12, max_concurrency=4)
    assert stub.peak_concurrency == 4


def test_all_at_once_without_limit(tmp_path, stub, server):
    records = load(tmp_path, server, ["normal"] * 300)
    assert all(record["error"] is None for record in records)
    assert {record["scheduled_s"] for record in records} == {0.0}


def test_nothing_is_sent_before_its_arrival(tmp_path, server):
    records = load(tmp_path, server, ["normal"] * 20, request_rate=200.0, seed=3)
    assert [record["scheduled_s"] for record in records] == arrivals(20, request_rate=200.0, seed=3)
    assert all(record["sent_s"] >= record["scheduled_s"] for record in records)


def test_arrivals_are_a_seeded_poisson_process():
    times = arrivals(20_000, request_rate=50.0, seed=1)
    gaps = [after - before for before, after in itertools.pairwise(times)]
    mean = sum(gaps) / len(gaps)
    variance = sum((gap - mean) ** 2 for gap in gaps) / len(gaps)
    assert times[0] == 0
    assert mean == pytest.approx(1 / 50, rel=0.03)
    assert variance**0.5 == pytest.approx(1 / 50, rel=0.03)
    assert times == arrivals(20_000, request_rate=50.0, seed=1) != arrivals(20_000, request_rate=50.0, seed=2)


def test_constant_arrivals():
    assert arrivals(4, request_rate=2.0, arrivals="constant") == [0.0, 0.5, 1.0, 1.5]


@pytest.mark.parametrize("burstiness", [0.25, 1.0, 4.0])
def test_gamma_arrivals_have_the_rate_and_the_burstiness(burstiness):
    times = arrivals(40_000, request_rate=50.0, arrivals="gamma", burstiness=burstiness)
    gaps = [after - before for before, after in itertools.pairwise(times)]
    mean = sum(gaps) / len(gaps)
    variance = sum((gap - mean) ** 2 for gap in gaps) / len(gaps)
    assert mean == pytest.approx(1 / 50, rel=0.05)
    assert variance**0.5 / mean == pytest.approx(burstiness**-0.5, rel=0.05)


def test_ramp_up_grows_the_rate_evenly():
    # A rate that grows evenly to 10/s in 20 s gives 10·t²/40 requests until t.
    times = arrivals(400, request_rate=10.0, arrivals="constant", ramp_up_s=20.0)
    assert [sum(time < until - 1e-9 for time in times) for until in (4, 8, 12, 16, 20)] == [4, 16, 36, 64, 100]
    after = [time for time in times if time >= 20]
    assert [later - time for time, later in itertools.pairwise(after)] == pytest.approx([0.1] * (len(after) - 1))


def test_ramp_up_without_rate_spreads_what_may_be_in_flight():
    assert arrivals(6, ramp_up_s=8.0, max_concurrency=4) == [0, 2, 4, 6, 8, 8]
    assert arrivals(4, ramp_up_s=8.0) == [0, 2, 4, 6]


def test_replay_keeps_the_recorded_times(tmp_path, server):
    requests = write_requests(tmp_path / "requests.parquet", ["normal"] * 3, arrival_s=[5.0, 4.0, 4.25])
    plan = {"base_url": server, "endpoint": "chat", "model": "m", "requests": requests, "arrivals": "replay"}
    records, _ = run_load(LoadPlan(**plan))
    assert records["request_index"].to_pylist() == [1, 2, 0]
    assert records["scheduled_s"].to_pylist() == [0.0, 0.25, 1.0]
    write_requests(requests, ["normal"] * 3)
    with pytest.raises(ServelabError, match="no arrival times"):
        run_load(LoadPlan(**plan))


def plan_for(tmp_path: Path, base_url: str, prompts: list, **settings) -> LoadPlan:
    requests = write_requests(tmp_path / "requests.parquet", prompts)
    return LoadPlan(**{"base_url": base_url, "endpoint": "chat", "model": "m", "requests": requests} | settings)


def test_settle_requests_are_marked(tmp_path, server):
    records = load(tmp_path, server, ["normal"] * 5, settle_requests=2)
    assert [record["phase"] for record in records] == ["settle"] * 2 + ["measured"] * 3


@pytest.mark.parametrize("processes", [1, 2])
def test_duration_leaves_out_what_was_not_sent(processes, tmp_path, server):
    plan = plan_for(tmp_path, server, ["normal"] * 400, duration_s=0.4, max_concurrency=4, processes=processes)
    records, stats = run_load(plan)
    assert stats.requests_not_sent == 400 - len(records) > 0
    assert set(records["error"].to_pylist()) == {None}
    assert max(records["started_s"].to_pylist()) < 0.4
    assert not stats.saturated


@pytest.mark.parametrize("processes", [1, 2])
def test_saturation_ends_the_round(processes, tmp_path, server):
    plan = plan_for(tmp_path, server, ["stall"] * 60, request_rate=200.0, saturation_in_flight=10, processes=processes)
    records, stats = run_load(plan)
    assert stats.saturated
    assert len(records) == 60
    assert {error.split(":")[0] for error in records["error"].to_pylist()} == {"saturated"}
    begun = sum(time is not None for time in records["started_s"].to_pylist())
    assert 10 <= begun <= 10 + processes


@pytest.mark.parametrize("settings", [{}, {"max_concurrency": 7}, {"request_rate": 300.0}])
def test_processes_together_send_each_request_once(settings, tmp_path, stub, server):
    plan = plan_for(tmp_path, server, [f"normal {index}" for index in range(60)], processes=3, **settings)
    records, stats = run_load(plan)
    assert stats.processes == 3
    assert set(records["error"].to_pylist()) == {None}
    assert records["request_index"].to_pylist() == list(range(60))
    assert len({body["messages"][0]["content"] for body in stub.bodies}) == len(stub.bodies) == 60
    assert stub.peak_concurrency <= settings.get("max_concurrency", 60)
    assert min(records["started_s"].to_pylist()) >= 0


def children_of(pid: int) -> list[psutil.Process]:
    return [child for child in psutil.Process(pid).children() if child.is_running()]


@pytest.fixture
def stalled_client(tmp_path, server):
    plan = plan_for(tmp_path, server, ["stall"] * 4, processes=2)
    command = CLIENTS.get("servelab").command(plan, tmp_path, Path(sys.executable))
    client = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    while len(children_of(client.pid)) < 2 or client.poll() is not None:
        assert client.poll() is None
    yield client
    client.kill()
    client.wait()
    client.stderr.close()


def test_a_load_process_that_dies_is_an_error_that_names_it(stalled_client):
    victim = children_of(stalled_client.pid)[1]
    victim.kill()
    _, said = stalled_client.communicate(timeout=60)
    assert stalled_client.returncode == 75
    assert f"load process 2 of 2 (pid {victim.pid}) died: exit code -9" in said


def test_load_processes_die_with_their_parent(stalled_client):
    children = children_of(stalled_client.pid)
    stalled_client.kill()
    _, alive = psutil.wait_procs(children, timeout=60)
    assert not alive


def test_half_of_all_refused(tmp_path, server):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        records = load(tmp_path, server, ["normal", "refused"] * 30)
        refused = load(tmp_path, f"http://127.0.0.1:{unused.getsockname()[1]}", ["normal"] * 2000)
    assert [record["error"] is None for record in records] == [True, False] * 30
    assert {record["error"].split(":")[0] for record in refused} == {"connect_failed"}


def test_large_prompt_takes_several_writes(tmp_path, stub, server):
    (record,) = load(tmp_path, server, [list(range(1_000_000))], endpoint="completions")
    assert record["error"] is None
    assert stub.bodies[0]["prompt"] == list(range(1_000_000))


def test_server_by_name_and_by_ipv6(tmp_path, monkeypatch):
    with StubServer(host="::1").running() as base_url:
        (record,) = load(tmp_path, base_url, ["normal"])
        assert record["error"] is None
        with socket.socket(socket.AF_INET6) as unused:
            unused.bind(("::1", 0))
            refusing = (socket.AF_INET6, unused.getsockname())
            monkeypatch.setattr("servelab.load.loop.resolve", lambda plan: [refusing, *resolve(plan)])
            records = load(tmp_path, base_url, ["normal"] * 3)
        assert [record["error"] for record in records] == [None] * 3, "a name's other addresses are tried too"
        monkeypatch.undo()
    (record,) = load(tmp_path, "http://no-such-host.invalid:1", ["normal"])
    assert record["error"].startswith("connect_failed")


def test_too_few_open_files_is_said_before_the_first_request(tmp_path, stub, server):
    plan = plan_for(tmp_path, server, ["normal"] * 300, max_concurrency=300)
    command = CLIENTS.get("servelab").command(plan, tmp_path, Path(sys.executable))
    ended = subprocess.run(
        ["prlimit", "--nofile=200:200", *command], capture_output=True, text=True, timeout=120, check=False
    )
    assert ended.returncode == 2
    assert "300 requests in flight need 364 open files" in ended.stderr
    assert stub.connections == 0


def test_stats_tell_what_it_cost(tmp_path, server):
    _, stats = run_load(plan_for(tmp_path, server, ["normal"] * 20))
    assert stats.processes == 1
    assert 0 < stats.cpu_s < 60
    assert stats.max_rss_bytes > 1 << 20
    assert stats.unread_p99_ms >= 0
    assert stats.wall_s > FIRST_TOKEN_S


def test_clock_difference_after_the_clock_was_set():
    difference = ClockDifference()
    difference.measure()
    real, monotonic = time.time_ns(), time.monotonic()
    stamp = struct.pack("qq", *divmod(real - 5_000_000, 10**9))
    (arrived, unknown) = difference.arrivals(stamp + NO_STAMP, [monotonic, monotonic])
    assert arrived == pytest.approx(monotonic - 0.005, abs=1e-3)
    assert unknown == monotonic
    difference._at.append(monotonic + 10)
    difference._difference_ns.append(difference._difference_ns[0] + 10**9)
    assert difference.arrivals(stamp, [monotonic + 1]) == [monotonic + 1]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("kind", [io.StringIO, Terminal])
def test_progress(kind):
    board, said = Board(2), kind()
    progress = LoadProgress(board, 10, 0.0, said)
    progress.show()
    board.write(0, Totals(3, 2, 1, 100))
    board.write(1, Totals(2, 1, 0, 50))
    assert said.getvalue() == ""
    progress.show(last=True)
    assert "3 of 10 requests, 5 in flight, 1 failed" in said.getvalue()
    assert said.getvalue().startswith("\r") == (kind is Terminal)


def test_chat_request(tmp_path, stub, server):
    load(tmp_path, server, ["normal é"], body={"ignore_eos": True})
    assert stub.paths == ["/v1/chat/completions"]
    assert stub.bodies == [
        {
            "model": "m",
            "messages": [{"role": "user", "content": "normal é"}],
            "max_tokens": OUTPUT_TOKENS,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
            "ignore_eos": True,
        }
    ]


@pytest.mark.parametrize("prompt", ["normal", [5, 6, 7]])
def test_completions_request(prompt, tmp_path, stub, server):
    (record,) = load(tmp_path, server, [prompt], endpoint="completions")
    assert record["error"] is None
    assert record["chunks"] == OUTPUT_TOKENS
    assert stub.paths == ["/v1/completions"]
    assert stub.bodies[0]["prompt"] == prompt


def test_phase_and_limit(tmp_path, stub, server):
    requests = write_requests(tmp_path / "warmup.parquet", [f"normal {i}" for i in range(5)], phase="warmup")
    plan = {"base_url": server, "endpoint": "chat", "model": "m", "requests": requests}
    assert len(run_load(LoadPlan(**plan, phase="warmup", limit=2, round=4))[0]) == 2
    assert sorted(body["messages"][0]["content"] for body in stub.bodies) == ["normal 0", "normal 1"]
    with pytest.raises(ServelabError, match="holds no request of phase `measured`"):
        run_load(LoadPlan(**plan))


def test_requests_that_cannot_be_read(tmp_path):
    requests = tmp_path / "requests.parquet"
    plan = {"base_url": "http://127.0.0.1:9", "endpoint": "chat", "model": "m", "requests": requests}
    with pytest.raises(ServelabError, match=r"requests\.parquet: not a workload's requests"):
        run_load(LoadPlan(**plan))
    requests.write_text("no parquet")
    with pytest.raises(ServelabError, match=r"requests\.parquet: not a workload's requests"):
        run_load(LoadPlan(**plan))
    write_requests(requests, [[1, 2]])
    with pytest.raises(ServelabError, match="token ids, which the chat endpoint does not take"):
        run_load(LoadPlan(**plan))


@pytest.mark.parametrize(
    "change",
    [
        {"base_url": "https://127.0.0.1:1"},
        {"base_url": "http://127.0.0.1"},
        {"base_url": "http://127.0.0.1:99999"},
        {"base_url": "http://127.0.0.1:1/v1"},
        {"request_rate": 0},
        {"request_rate": "fast"},
        {"body": {"stream": False}},
        {"endpoint": "embeddings"},
    ],
)
def test_plan_refuses(change):
    plan = {"base_url": "http://127.0.0.1:1", "endpoint": "chat", "model": "m", "requests": "r.parquet"}
    LoadPlan(**plan)
    with pytest.raises(ValidationError):
        LoadPlan(**plan | change)


@pytest.mark.parametrize("name", [client.name for client in CLIENTS if client.lock is None])
def test_client_as_it_is_run(name, tmp_path, server):
    client = CLIENTS.get(name)
    requests = write_requests(tmp_path / "requests.parquet", ["normal"] * 8)
    plan = LoadPlan(base_url=server, endpoint="chat", model="m", requests=requests, round=2)
    output = tmp_path / "records"
    output.mkdir()
    subprocess.run(client.command(plan, output, Path(sys.executable)), check=True, timeout=120)
    records = client.read(plan, output).records
    assert records.schema.equals(schemas.RUN_REQUESTS)
    assert records["round"].to_pylist() == [2] * 8
    assert records["error"].to_pylist() == [None] * 8
    assert client.name == name
    (output / "requests.parquet").write_bytes(b"half a file")
    with pytest.raises(ServelabError):
        client.read(plan, output)


@pytest.mark.parametrize(
    ("plan", "message"), [(None, "No such file"), ("{", "Invalid JSON"), ('{"rate": 1}', "base_url")]
)
def test_command_line_names_the_mistake(plan, message, tmp_path):
    path = tmp_path / "load.json"
    if plan is not None:
        path.write_text(plan)
    command = [sys.executable, "-m", "servelab.load", "--load", str(path), "--output", str(tmp_path / "out")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 2
    assert ended.stderr.startswith(f"error: {path}")
    assert message in ended.stderr
    assert not (tmp_path / "out").exists()


def answer_events() -> list[bytes]:
    events = [{"choices": [{"delta": {"role": "assistant", "content": ""}, "finish_reason": None}]}]
    events += [{"choices": [{"delta": {"content": text}, "finish_reason": None}]} for text in ("a", "", "\n\n", "é")]
    events += [{"choices": [{"delta": {"content": ""}, "finish_reason": "length"}]}]
    usage = {"prompt_tokens": 3, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 2}}
    events += [{"choices": [], "usage": usage}]
    return [f"data: {json.dumps(event, ensure_ascii=False)}\n\n".encode() for event in events] + [b"data: [DONE]\n\n"]


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("seed", range(50))
def test_an_event_arrives_with_the_piece_that_completes_it(seed, line_end):
    events = [event.replace(b"\n", line_end) for event in answer_events()]
    body = b"".join(events)
    draw = random.Random(seed)
    offsets = sorted({*draw.sample(range(1, len(body)), draw.randint(0, 40)), len(body)})
    stamps = [0.5 * (i + 1) for i in range(len(offsets))]
    ends = [sum(map(len, events[: i + 1])) for i in range(len(events))]
    # Events 1 to 4 carry a token; the role event, the finish and the usage do not.
    expected = [next(at for at, offset in zip(stamps, offsets, strict=True) if offset >= ends[i]) for i in range(1, 5)]
    answer = read_answer(body, stamps, offsets)
    assert answer.token_times.tolist() == expected
    assert (answer.input_tokens, answer.cached_tokens, answer.output_tokens) == (3, 2, 4)
    assert answer.done
    assert answer.error is None
    assert answer.finish_reason == "length"


def test_a_cut_answer_keeps_what_had_come():
    body = b"".join(answer_events())
    for cut in range(len(body)):
        answer = read_answer(body[:cut], [1.0], [cut])
        assert not answer.done
        assert answer.error is None
        assert len(answer.token_times) <= 4
