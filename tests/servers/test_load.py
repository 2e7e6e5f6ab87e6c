"""The load client as a whole: what it sends, its limits, its connections, and servers that are not there."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from servers.made_load import OUTPUT_TOKENS, load, plan_for, write_requests
from servers.stub_server import StubServer

from servelab.core.errors import ConfigError, ServelabError
from servelab.measure.clients import CLIENTS
from servelab.measure.load import LoadPlan
from servelab.measure.load.connections import resolve
from servelab.measure.load.sender import send_load
from servelab.metrics.tables import schemas


def test_no_server(tmp_path):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        records = load(tmp_path, f"http://127.0.0.1:{unused.getsockname()[1]}", ["normal"] * 3)
    for record in records:
        assert record["error"].startswith("connect_failed")
        assert record["sent_s"] is None
        assert record["end_s"] is not None


def test_round_timeout_ends_what_is_running_and_what_was_never_sent(tmp_path, server):
    records = load(tmp_path, server, ["normal", "a stall", "normal"], timeout_s=2.0, max_concurrency=1)
    assert [(record["error"] or "success").split(":")[0] for record in records] == [
        "success",
        "round_timeout",
        "round_timeout",
    ]
    assert [record["sent_s"] is None for record in records] == [False, False, True]


def test_concurrency_is_limited_and_reached(tmp_path, stub, server):
    load(tmp_path, server, ["normal"] * 12, max_concurrency=4)
    assert stub.peak_concurrency == 4


def test_settle_requests_are_marked(tmp_path, server):
    records = load(tmp_path, server, ["normal"] * 5, settle_requests=2)
    assert [record["phase"] for record in records] == ["settle"] * 2 + ["measured"] * 3


@contextlib.contextmanager
def refusing_before_the_body(closes: bool) -> Iterator[str]:
    """A server that answers 413 once it has read the head, and reads no more."""
    answer = b"HTTP/1.1 413 X\r\nContent-Length: 8\r\n\r\ntoo long"
    with socket.create_server(("127.0.0.1", 0)) as listening, ExitStack() as connections:

        def serve() -> None:
            with contextlib.suppress(OSError):  # the listening socket is shut down at the end
                while True:
                    connection = connections.enter_context(listening.accept()[0])
                    connection.recv(1 << 14)
                    connection.sendall(answer)
                    if closes:
                        connection.close()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.mark.parametrize("closes", [False, True])
def test_answer_while_a_large_prompt_is_being_written(closes, tmp_path):
    with refusing_before_the_body(closes) as base_url:
        prompts = [list(range(2_000_000))] * 2
        records = load(tmp_path, base_url, prompts, endpoint="completions", request_timeout_s=20.0)
    for record in records:
        # Closing with data unread resets the connection, which may throw away the answer that was sent before.
        assert record["error"].split(":")[0] in {"http_error", *({"closed_early"} if closes else ())}
        assert record["sent_s"] is not None
        assert record["end_s"] < 20
    if not closes:
        assert {record["error"] for record in records} == {"http_error: 413 too long"}


def test_server_by_name_and_by_ipv6(tmp_path, monkeypatch):
    with StubServer(host="::1").running() as base_url:
        (record,) = load(tmp_path, base_url, ["normal"])
        assert record["error"] is None
        with socket.socket(socket.AF_INET6) as unused:
            unused.bind(("::1", 0))
            refusing = (socket.AF_INET6, unused.getsockname())
            monkeypatch.setattr("servelab.measure.load.loop.resolve", lambda plan: [[refusing, *resolve(plan)[0]]])
            records = load(tmp_path, base_url, ["normal"] * 3)
        assert [record["error"] for record in records] == [None] * 3, "a name's other addresses are tried too"
        monkeypatch.undo()
    (record,) = load(tmp_path, "http://no-such-host.invalid:1", ["normal"])
    assert record["error"].startswith("connect_failed")


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


def test_requests_that_cannot_be_read(tmp_path):
    requests = tmp_path / "requests.parquet"
    plan = {"base_url": "http://127.0.0.1:9", "endpoint": "chat", "model": "m", "requests": requests}
    with pytest.raises(ServelabError, match=r"requests\.parquet: not a workload's requests"):
        send_load(LoadPlan(**plan))
    requests.write_text("no parquet")
    with pytest.raises(ServelabError, match=r"requests\.parquet: not a workload's requests"):
        send_load(LoadPlan(**plan))
    write_requests(requests, [[1, 2]])
    with pytest.raises(ServelabError, match="token ids, which the chat endpoint does not take"):
        send_load(LoadPlan(**plan))


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
    "answer, said", [(b"HTTP/1.1 400 Bad Request\r\n\r\n", "[SSL"), (b"", "the server closed the connection during")]
)
def test_a_server_that_does_not_speak_tls(answer, said, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def refuse():
            connection, _ = listening.accept()
            connection.recv(1 << 16)
            connection.sendall(answer)
            connection.close()

        server = threading.Thread(target=refuse)
        server.start()
        (record,) = load(tmp_path, f"https://127.0.0.1:{listening.getsockname()[1]}", ["normal"])
        server.join()
    assert record["error"].startswith(f"connect_failed: {said}")


@pytest.mark.parametrize("settings", [{"base_url": "https://127.0.0.1:9"}, {"api_key_env": "MY_KEY"}])
def test_other_clients_refuse_tls_and_keys(settings, tmp_path):
    plan = plan_for(tmp_path, "http://127.0.0.1:9", ["normal"]).model_copy(update=settings)
    for name in ("guidellm", "vllm-bench"):
        with pytest.raises(ConfigError, match="use client `servelab`"):
            CLIENTS.get(name).command(plan, tmp_path, sys.executable)
