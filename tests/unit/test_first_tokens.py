"""Log-probabilities of first tokens: asked of a server on loopback, in the shapes in which engines print them."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pyarrow as pa
import pytest

from servelab.measure.first_tokens import FirstTokenQuestions, first_tokens, with_first_tokens
from servelab.metrics.tables import schemas

OBJECTS = {"content": [{"top_logprobs": [{"id": 7, "token": "a", "logprob": -2.5}, {"id": 9, "logprob": -0.1}]}]}
ONE_OBJECT = {"top_logprobs": [{"token_id:7": -2.5, "token_id:9": -0.1}]}
FOUND = {"9": -0.1, "7": -2.5}


def printed(logprobs):
    return json.dumps({"choices": [{"text": "a", "logprobs": logprobs}]}).encode()


@pytest.mark.parametrize(
    "logprobs",
    [
        OBJECTS,
        ONE_OBJECT,
        {"content": [{"top_logprobs": [{"token": "token_id:9", "logprob": -0.1}, {"id": 7, "logprob": -2.5}]}]},
        {"content": [{"top_logprobs": [*OBJECTS["content"][0]["top_logprobs"], {"id": 3, "logprob": None}]}]},
        {"content": [{"top_logprobs": [*OBJECTS["content"][0]["top_logprobs"], {"token": "a", "logprob": -1.0}]}]},
    ],
)
def test_each_shape_is_read_and_tokens_without_an_id_or_a_figure_are_left_out(logprobs):
    assert list(first_tokens(printed(logprobs)).items()) == list(FOUND.items())  # the likeliest first


@pytest.fixture
def server():
    """Answers `POST` by the word that the prompt begins with; `sent` are the bodies in order."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            found.sent.append((self.path, body))
            prompt = body["messages"][0]["content"] if "messages" in body else body["prompt"]
            content = printed(OBJECTS) if prompt.startswith("good") else b'{"choices": [{"text": "a"}]}'
            self.send_response(400 if prompt.startswith("refused") else 200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *arguments):
            pass

    found = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.sent = []
    thread = threading.Thread(target=found.serve_forever, daemon=True)
    thread.start()
    yield found
    found.shutdown()
    found.server_close()


def answers(*prompts):
    rows = [{"request_index": number, "prompt": prompt, "text": "x"} for number, prompt in enumerate(prompts)]
    return pa.Table.from_pylist(rows, schema=schemas.RUN_ANSWERS)


def asked(server, left_s=60.0, **changes):
    url = f"http://127.0.0.1:{server.server_address[1]}/v1/completions"
    return FirstTokenQuestions(
        url, "completions", {"model": "m", "n_probs": 20}, 2, time.monotonic() + left_s
    )._replace(**changes)


def test_every_question_is_sent_once_more_for_one_token(server):
    found = with_first_tokens(answers("good 1", "good 2", "none", "good 3"), asked(server))
    assert found.schema.equals(schemas.RUN_ANSWERS)
    assert found["first_tokens"].to_pylist() == [["9", "7"], ["9", "7"], None, ["9", "7"]]
    assert found["first_logprobs"].to_pylist()[0] == [-0.1, -2.5]
    assert found["text"].to_pylist() == ["x"] * 4
    path, body = server.sent[0]
    assert path == "/v1/completions"
    assert body == {
        "model": "m",
        "n_probs": 20,
        "prompt": "good 1",
        "max_tokens": 1,
        "temperature": 0,
        "stream": False,
    }
    assert len(server.sent) == 4
