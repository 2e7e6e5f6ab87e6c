"""How the engines' caches are emptied, against a server that answers as each release does."""

from __future__ import annotations

import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from servelab.engines.adapters import ENGINES
from servelab.measure.small_answer import ask


@pytest.fixture
def answering():
    """Starts a server that gives each request the same answer, and tells what was asked."""
    servers = []

    def start(status, body):
        asked = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                asked.append(self.path)
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}", asked

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    ("engine", "status", "body", "done"),
    [
        ("vllm", 200, b'{"success": true}', True),  # 0.32.0
        ("vllm", 200, b'{"success": false}', False),  # 0.32.0 while a request runs
        ("vllm", 200, b"", True),  # 0.11.0 and 0.17.1 answer nothing
        ("vllm", 404, b'{"detail": "Not Found"}', False),
        ("vllm-ascend", 200, b"", True),
        ("sglang", 200, b"Cache flushed.\n", True),
        ("sglang", 400, b"Cache flushed.\n", False),  # the words are the same while a request runs
    ],
)
def test_reset_by_request(answering, engine, status, body, done):
    base_url, asked = answering(status, body)
    adapter = ENGINES.get(engine)
    answer = ask("POST", base_url + adapter.cache_reset, 60)
    assert (answer.status == HTTPStatus.OK and adapter.has_reset(answer.content)) is done
    assert asked == ["/flush_cache" if engine == "sglang" else "/reset_prefix_cache"]


@pytest.mark.parametrize(
    ("engine", "arguments", "reset"),
    [
        ("llama.cpp", {"cache-ram": 0}, ""),
        ("llama.cpp", {"-cram": "0"}, ""),
        ("llama.cpp", {}, None),  # prompts of idle slots go to the host's memory
        ("llama.cpp", {"--cache-ram": 512}, None),
        ("tensorrt-llm", {}, ""),
        ("mindie", {}, ""),
        ("vllm", {}, "/reset_prefix_cache"),
    ],
)
def test_a_server_that_keeps_no_prompts_stays_as_it_is(engine, arguments, reset):
    assert ENGINES.get(engine).cache_reset_with({"prefix_caching": False}, arguments) == reset
