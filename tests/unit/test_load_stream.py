"""The pieces an answer arrived in, and when each of its tokens came."""

from __future__ import annotations

import json
import random
import struct
import time

import pytest

from servelab.measure.load.board import ClockDifference
from servelab.measure.load.connections import NO_STAMP
from servelab.measure.load.records import read_answer


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
    answer = read_answer(body)
    assert answer.token_times(stamps, offsets).tolist() == expected
    assert (answer.input_tokens, answer.cached_tokens, answer.output_tokens) == (3, 2, 4)
    assert answer.done
    assert answer.error is None
    assert answer.finish_reason == "length"


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
