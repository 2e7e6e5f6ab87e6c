"""Tokens from the prefix cache and from drafts, and energy, of a round; no observation if that is unknown."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from servelab.metrics.definitions import Round, round_metrics
from servelab.metrics.tables.io import Floats, RecordArray, known, maximum


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


def _cached_input_percent(data: Round) -> float | None:
    share = cached_share(data.successes, data.telemetry)
    return None if share is None else 100 * share


def _draft_acceptance_percent(data: Round) -> float | None:
    drafted, accepted = (increase(data.telemetry, of) for of in ("draft_tokens_total", "accepted_draft_tokens_total"))
    if drafted and accepted is not None:
        return 100 * accepted / drafted
    return _mean(100 * during_load(data.telemetry, "draft_accepted_fraction"))


def _draft_accepted_length_tokens(data: Round) -> float | None:
    drafts, accepted = (increase(data.telemetry, name) for name in ("drafts_total", "accepted_draft_tokens_total"))
    if drafts and accepted is not None:
        return 1 + accepted / drafts
    return _mean(during_load(data.telemetry, "accepted_length_tokens"))


def _mean(readings: Floats) -> float | None:
    """The mean of the readings above 0; none without any: a server that drafts nothing may print 0."""
    drafted = readings[readings > 0]
    return float(drafted.mean()) if drafted.size else None


_LONGEST_GAP_S = 10.0
_FEWEST_GAPS = 4
"""Power is not known if there are fewer intervals between readings in a round, or if one is longer than the above."""


def _per(amount: float, data: Round) -> float | None:
    joules = _joules(data)
    return joules / amount if joules is not None and amount > 0 else None


@lru_cache(maxsize=16)
def _joules(data: Round) -> float | None:
    return energy_j(data.telemetry, data.start_s, data.start_s + data.duration_s)


def energy_j(telemetry: RecordArray, start_s: float, end_s: float) -> float | None:
    """Joules that all devices of the run used from `start_s` to `end_s`; None if they are not known for each.

    `telemetry` has one round's rows of `schemas.TELEMETRY`.
    """
    rows = telemetry[np.argsort(telemetry["time_s"], kind="stable")]
    counters, powers = (_by_device(rows[rows["metric"] == metric]) for metric in ("energy_j_total", "power_w"))
    devices = counters.keys() | powers.keys()
    if not devices or len(devices) != maximum(rows["value"][rows["metric"] == "devices"]):
        return None
    joules = [_by_counter(rows, start_s, end_s) for rows in counters.values()]
    joules += [_by_power(powers[device], start_s, end_s) for device in powers.keys() - counters.keys()]
    return None if None in joules else float(sum(each for each in joules if each is not None))


def _by_device(rows: RecordArray) -> dict[str, RecordArray]:
    return {device: rows[rows["device"] == device] for device in dict.fromkeys(rows["device"]) if device is not None}


def _by_counter(rows: RecordArray, start_s: float, end_s: float) -> float | None:
    times, joules = rows["time_s"], rows["value"]
    if times[0] > start_s or times[-1] < end_s or (np.diff(joules) < 0).any():
        return None
    used = float(np.interp(end_s, times, joules) - np.interp(start_s, times, joules))
    return used if used > 0 else None


def _by_power(rows: RecordArray, start_s: float, end_s: float) -> float | None:
    times, watts = rows["time_s"], rows["value"]
    if times[0] > start_s or times[-1] < end_s:
        return None
    first, last = np.searchsorted(times, start_s, "right") - 1, np.searchsorted(times, end_s)
    times, watts = times[first : last + 1], watts[first : last + 1]
    longest = min(_LONGEST_GAP_S, (end_s - start_s) / _FEWEST_GAPS)
    if (np.diff(times) > longest).any() or (watts <= 0).any():
        return None
    at = np.concatenate([[start_s], times[(times > start_s) & (times < end_s)], [end_s]])
    return float(np.trapezoid(np.interp(at, times, watts), at))


round_metrics(
    {
        "cached_input_percent": _cached_input_percent,
        "draft_acceptance_percent": _draft_acceptance_percent,
        "draft_accepted_length_tokens": _draft_accepted_length_tokens,
        "energy_per_output_token_j": lambda data: _per(data.output_tokens, data),
        "energy_per_token_j": lambda data: _per(data.tokens, data),
        "mean_power_w": lambda data: _per(data.duration_s, data),
    }
)
