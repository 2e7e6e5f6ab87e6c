"""Hostile servers: each bad answer fails only its own request, with a reason; the others of the round are sound."""

from __future__ import annotations

import pytest
from hostile_servers import KINDS, HostileServer, event, token, usage
from made_load import OUTPUT_TOKENS, load

from servelab.measure.load.exchange import decode
from servelab.measure.load.records import read_answer
from servelab.measure.load.sender import ERRORS

PROMPTS = ["hostile", "normal", "hostile", "normal"]
SUCCEEDS = {
    "runs of four",
    "lines within an event",
    "a length and chunks",
    "thousands of choices",
    "a huge key",
    "keys twice",
}
"""Kinds some of whose answers are, taken by the letter, what was asked for."""


@pytest.fixture
def hostile(request):
    server = HostileServer(*request.param)
    with server.running() as base_url:
        yield base_url


def test_there_are_enough():
    assert len(KINDS) >= 60


@pytest.mark.parametrize("hostile", [(kind, 0) for kind in KINDS], ids=list(KINDS), indirect=True)
def test_a_hostile_answer_fails_only_its_request(hostile, request, tmp_path):
    records = load(tmp_path, hostile, PROMPTS, request_timeout_s=1.5, timeout_s=60.0)
    kind = request.node.callspec.id
    for record in records[0::2]:
        error = record["error"]
        assert error is not None or kind in SUCCEEDS
        assert error is None or error.split(":")[0] in ERRORS
        assert error is None or (error.isprintable() and len(error) < 500)
    assert [record["error"] for record in records[1::2]] == [None, None]
    assert [record["output_tokens"] for record in records[1::2]] == [OUTPUT_TOKENS] * 2


@pytest.mark.parametrize("value", [True, -1, 2**31, 1.5, "7", None, {}, [7]])
@pytest.mark.parametrize("name", ["prompt_tokens", "completion_tokens"])
def test_a_count_that_is_none_is_a_broken_event(name, value):
    answer = read_answer(body := event(usage(**{name: value})), [1.0], [len(body)])
    assert answer.error is not None and answer.error.startswith("broken_event: ")
    assert answer.input_tokens in (None, 7) and answer.output_tokens is None


def test_an_empty_body_of_chunks_is_complete():
    raw = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    decoded = decode(raw, [len(raw)])
    assert (decoded.body, decoded.complete, decoded.ends.tolist()) == (b"", True, [0])


@pytest.mark.parametrize("events", [1, 3, 4, 5, 40, 300, 3000])
@pytest.mark.parametrize("size", [1, 100, 9000])
def test_runs_of_events_have_all_their_times(events, size):
    if events * size > 3_000_000:
        pytest.skip("larger than any answer")
    parts = [event(token("x" * (size + number % 7))) for number in range(events)]
    ends = [sum(map(len, parts[: number + 1])) for number in range(events)]
    body = b"".join(parts) + event(usage()) + b"data: [DONE]\n\n"
    answer = read_answer(body, [float(number) for number in range(events + 1)], [*ends, len(body)])
    assert answer.error is None and answer.done
    assert answer.token_times.tolist() == [float(number) for number in range(events)]


def test_more_events_than_any_answer_has_are_not_read():
    body = b":\n\n" * 5000
    assert read_answer(body, [1.0], [len(body)], most_events=5001).error is None
    assert read_answer(body, [1.0], [len(body)], most_events=99).error == "broken_event: more than 99 events"
