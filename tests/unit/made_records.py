"""Records of requests made for the tests: by hand, at random, and as loads whose figures are known."""

import random

import pyarrow as pa

from servelab.metrics import definitions as metrics
from servelab.metrics.tables import schemas


def record(**values) -> dict:
    """A request of 10 + 3 tokens: sent at 1 s, first token at 1.2 s, then gaps of 50 and 100 ms."""
    return {
        "round": 0,
        "request_index": 0,
        "phase": "measured",
        "scheduled_s": 0.0,
        "started_s": 0.9,
        "sent_s": 1.0,
        "first_token_s": 1.2,
        "last_token_s": 1.35,
        "end_s": 1.4,
        "input_tokens_asked": 8,
        "input_tokens": 10,
        "cached_tokens": None,
        "output_tokens_asked": 3,
        "output_tokens": 3,
        "chunks": 3,
        "chunk_gaps_ms": [50.0, 100.0],
        "unread_ms": 0.0,
        "finish_reason": "length",
        "http_status": 200,
        "error": None,
    } | values


REFUSED = {
    "started_s": None,
    "sent_s": None,
    "first_token_s": None,
    "last_token_s": None,
    "input_tokens": None,
    "output_tokens": None,
    "chunks": 0,
    "chunk_gaps_ms": [],
    "http_status": None,
    "error": "connect_failed: refused",
}


def table(rows: list[dict]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=schemas.RUN_REQUESTS)


def summary(rows: list[dict], slos=None, price=None) -> dict[str, dict]:
    return {row["metric"]: row for row in metrics.summarise(metrics.RunData(table(rows), slos or {}, None, price))}


def stream(sent: float, seconds: float, tokens: int, *, input_tokens: int = 10, **values) -> dict:
    """A request whose tokens come one an event, the last as it ends, all equally far apart."""
    gap = seconds / tokens
    return record(
        scheduled_s=values.pop("scheduled_s", 0.0),
        started_s=sent,
        sent_s=sent,
        first_token_s=sent + gap,
        last_token_s=sent + seconds,
        end_s=sent + seconds,
        input_tokens=input_tokens,
        output_tokens=tokens,
        chunks=tokens,
        chunk_gaps_ms=[1000 * gap] * (tokens - 1),
        **values,
    )


def random_run(seed: int, rounds: int = 3, requests: int = 40, slots: int = 5) -> list[dict]:
    """Rounds of `slots` users who each send again a while after an answer; half of the requests fail, in some way."""
    draw = random.Random(seed)
    rows = []
    for round_number in range(rounds):
        free = [draw.uniform(0, 0.5) for _ in range(slots)]
        for index in range(requests):
            scheduled = free[index % slots]
            started = scheduled + draw.uniform(0, 0.01)
            sent = started + draw.uniform(0, 0.001)
            gaps = [draw.uniform(1, 200) for _ in range(draw.randint(0, 20))]
            first = sent + draw.uniform(0.01, 2)
            last = first + sum(gaps) / 1000
            times = {"scheduled_s": scheduled, "started_s": started, "sent_s": sent, "first_token_s": first}
            times |= {"last_token_s": last, "end_s": last + 0.01, "chunks": len(gaps) + 1}
            tokens = {"input_tokens": draw.randint(1, 500), "output_tokens": (len(gaps) + 1) * draw.randint(1, 3)}
            failed = draw.choice([{}, {}, {"error": "closed_early: x"}, REFUSED | {"end_s": scheduled + 0.01}])
            place = {"round": round_number, "request_index": index}
            rows.append(record(chunk_gaps_ms=gaps, **times, **tokens, **place) | failed)
            free[index % slots] = rows[-1]["end_s"] + draw.uniform(0.001, 0.05)
    return table(rows).to_pylist()  # gaps as the table's float32 holds them
