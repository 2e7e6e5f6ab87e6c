"""What a round took from the prefix cache: one observation per round, none if the server does not report it."""

from __future__ import annotations

import numpy as np

from servelab.metrics.definitions import Observations, Round, metric
from servelab.metrics.tables.io import Floats, RecordArray, known


def increase(telemetry: RecordArray, metric: str) -> float | None:
    """Increase of a counter of the server during the load; None if it was not read twice, or fell.

    `telemetry` has the round's rows of `schemas.TELEMETRY`.
    """
    found = telemetry[telemetry["metric"] == metric]
    found = found[np.argsort(found["time_s"], kind="stable")]
    before = found["time_s"] <= 0
    values = found["value"][max(0, before.sum() - 1) :]
    return float(values[-1] - values[0]) if len(values) > 1 and (np.diff(values) >= 0).all() else None


def during_load(telemetry: RecordArray, metric: str) -> Floats:
    """The readings of a gauge after the load began."""
    values: Floats = telemetry[(telemetry["metric"] == metric) & (telemetry["time_s"] > 0)]["value"]
    return values


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


@metric("cached_input_percent")
def _cached_input_percent(data: Round) -> Observations:
    share = cached_share(data.successes, data.telemetry)
    return np.array([] if share is None else [100 * share])


@metric("draft_acceptance_percent")
def _draft_acceptance_percent(data: Round) -> Observations:
    drafted, accepted = (
        increase(data.telemetry, name) for name in ("draft_tokens_total", "accepted_draft_tokens_total")
    )
    if drafted and accepted is not None:
        return np.array([100 * accepted / drafted])
    return _mean(100 * during_load(data.telemetry, "draft_accepted_fraction"))


@metric("draft_accepted_length_tokens")
def _draft_accepted_length_tokens(data: Round) -> Observations:
    drafts, accepted = (increase(data.telemetry, name) for name in ("drafts_total", "accepted_draft_tokens_total"))
    if drafts and accepted is not None:
        return np.array([1 + accepted / drafts])
    return _mean(during_load(data.telemetry, "accepted_length_tokens"))


def _mean(readings: Observations) -> Observations:
    """The mean of the readings above 0; none without any: a server that drafts nothing may print 0."""
    drafted = readings[readings > 0]
    return np.array([drafted.mean()]) if drafted.size else drafted
