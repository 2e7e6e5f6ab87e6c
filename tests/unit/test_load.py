"""The load client against a server with a known schedule and known faults: every request has its true record."""

from __future__ import annotations

import itertools
import json
import random
import socket
import subprocess
import sys
from pathlib import Path

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


def write_requests(path: Path, prompts: list, phase: str = "measured") -> Path:
    rows = [
        {
            "request_index": index,
            "phase": phase,
            "prompt": prompt if isinstance(prompt, str) else None,
            "prompt_token_ids": None if isinstance(prompt, str) else prompt,
            "input_tokens": 5,
            "output_tokens": OUTPUT_TOKENS,
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
    assert sum(record["chunk_gaps_ms"]) == pytest.approx(1000 * (times[3] - times[2]), rel=1e-5)


@pytest.mark.parametrize("behaviour", FAULTS)
def test_fault_has_a_record_and_harms_no_other_request(behaviour, tmp_path, server):
    prompts = [behaviour, "normal", behaviour, "normal"]
    records = load(tmp_path, server, prompts, request_timeout_s=2.0)
    status, error = FAULTS[behaviour]
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
