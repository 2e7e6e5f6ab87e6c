"""The share of a round's prompt tokens that a server took from its prefix cache."""

from __future__ import annotations

from servelab.metrics.counters import increase
from servelab.metrics.tables.record_array import RecordArray, known

_HITS, _QUERIES = "prefix_cache_hit_tokens_total", "prefix_cache_query_tokens_total"


def cached_share(successes: RecordArray, telemetry: RecordArray) -> float | None:
    """Cached / all prompt tokens of a round's successful requests, chat template included; None if neither is reported.

    The higher of what the answers' `usage` and the server's counters say. `telemetry` has the round's rows of
    `schemas.TELEMETRY`.
    """
    done = known(successes, "input_tokens", "input_tokens_asked")
    tokens, cached = float(done["input_tokens"].sum()), known(done, "cached_tokens")["cached_tokens"]
    hits, queries = increase(telemetry, _HITS), increase(telemetry, _QUERIES)
    shares = [hits / queries] if hits is not None and queries else []
    if cached.size and tokens:
        shares.append(float(cached.sum()) / tokens)
    return max(shares, default=None)
