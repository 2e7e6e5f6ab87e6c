"""Hostile servers: each bad answer fails only its own request, with a reason; the others of the round are sound."""

from __future__ import annotations

import pytest
from hostile_servers import KINDS, HostileServer, event, token, usage
from made_load import OUTPUT_TOKENS, load

from servelab.measure.load.records import ERRORS
from servelab.measure.load.stream import read_answer

PROMPTS = ["hostile", "normal", "hostile", "normal"]
SUCCEEDS = {"lines within an event", "thousands of choices", "a huge key", "keys twice"}
"""Kinds some of whose answers are, taken by the letter, what was asked for."""


@pytest.mark.parametrize("group", range(4))
def test_a_hostile_answer_fails_only_its_request(group, tmp_path):
    for kind in list(KINDS)[group::4]:
        with HostileServer(kind, 0).running() as base_url:
            records = load(tmp_path, base_url, PROMPTS, request_timeout_s=0.8, timeout_s=60.0)
        for record in records[0::2]:
            error = record["error"]
            assert error is not None or kind in SUCCEEDS, kind
            assert error is None or error.split(":")[0] in ERRORS, kind
            assert error is None or (error.isprintable() and len(error) < 500), kind
        assert [record["error"] for record in records[1::2]] == [None, None], kind
        assert [record["output_tokens"] for record in records[1::2]] == [OUTPUT_TOKENS] * 2, kind


def test_a_count_that_is_none_is_a_broken_event():
    for name in ("prompt_tokens", "completion_tokens"):
        for value in (True, -1, 2**31, 1.5, "7", None, {}, [7]):
            answer = read_answer(event(usage(**{name: value})))
            assert answer.error is not None and answer.error.startswith("broken_event: ")
            assert answer.input_tokens in (None, 7) and answer.output_tokens is None


def test_events_of_any_number_and_size_have_all_their_times():
    for events, size in ((1, 1), (3, 9000), (40, 100), (3000, 100)):
        parts = [event(token("x" * (size + number % 7))) for number in range(events)]
        ends = [sum(map(len, parts[: number + 1])) for number in range(events)]
        body = b"".join(parts) + event(usage()) + b"data: [DONE]\n\n"
        answer = read_answer(body)
        assert answer.error is None and answer.done
        stamps = [float(number) for number in range(events + 1)]
        assert answer.token_times(stamps, [*ends, len(body)]).tolist() == stamps[:-1]
