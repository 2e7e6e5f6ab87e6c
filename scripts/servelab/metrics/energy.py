"""What a round used of energy, by telemetry: one observation a round, none where a figure would be a guess."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pandas as pd

from servelab.metrics import Observations, Round, metric

_LONGEST_GAP_S = 10.0
_FEWEST_GAPS = 4
"""Power read more seldom than this in a round, or further apart than the above, is not known in between."""
_KNOWN = (
    "It is known only where every device of the run was read from before the first send until after the last end: "
    "the difference of its energy counter, or without one the integral of its power by the trapezoidal rule."
)


@metric(
    "energy_per_output_token_j",
    title="Energy per output token",
    unit="joules per token",
    formula=f"energy of the run's devices over the duration / output tokens of successful requests. {_KNOWN}",
    equals="no client's",
    higher_is_better=False,
)
def _energy_per_output_token_j(data: Round) -> Observations:
    return _per(float(data.successes.output_tokens.sum()), data)


@metric(
    "energy_per_token_j",
    title="Energy per token",
    unit="joules per token",
    formula="energy of the run's devices over the duration / (input tokens + output tokens) of successful requests; "
    "known where `energy_per_output_token_j` is",
    equals="no client's",
    higher_is_better=False,
)
def _energy_per_token_j(data: Round) -> Observations:
    return _per(float(data.successes.output_tokens.sum() + data.successes.input_tokens.sum()), data)


@metric(
    "mean_power_w",
    title="Mean power",
    unit="watts",
    formula="energy of the run's devices over the duration / duration; known where `energy_per_output_token_j` is",
    equals="no client's",
    higher_is_better=None,
)
def _mean_power_w(data: Round) -> Observations:
    return _per(data.duration_s, data)


def _per(amount: float, data: Round) -> Observations:
    joules = _joules(data)
    return np.array([joules / amount] if joules is not None and amount > 0 else [])


@lru_cache(maxsize=16)
def _joules(data: Round) -> float | None:
    return energy_j(data.telemetry, data.start_s, data.start_s + data.duration_s)


def energy_j(telemetry: pd.DataFrame, start_s: float, end_s: float) -> float | None:
    """Joules that all devices of the run used from `start_s` to `end_s`; None where they are not known of each.

    `telemetry` has one round's rows of `schemas.TELEMETRY`.
    """
    rows = telemetry.sort_values("time_s")
    counters = dict(list(rows[rows.metric == "energy_j_total"].groupby("device")))
    powers = dict(list(rows[rows.metric == "power_w"].groupby("device")))
    devices = counters.keys() | powers.keys()
    if not devices or len(devices) != rows.value[rows.metric == "devices"].max():
        return None
    joules = [
        _by_counter(counters[device], start_s, end_s)
        if device in counters
        else _by_power(powers[device], start_s, end_s)
        for device in devices
    ]
    return None if None in joules else float(sum(each for each in joules if each is not None))


def _by_counter(rows: pd.DataFrame, start_s: float, end_s: float) -> float | None:
    times, joules = rows.time_s.to_numpy(), rows.value.to_numpy()
    if times[0] > start_s or times[-1] < end_s or (np.diff(joules) < 0).any():
        return None
    used = float(np.interp(end_s, times, joules) - np.interp(start_s, times, joules))
    return used if used > 0 else None


def _by_power(rows: pd.DataFrame, start_s: float, end_s: float) -> float | None:
    times, watts = rows.time_s.to_numpy(), rows.value.to_numpy()
    if times[0] > start_s or times[-1] < end_s:
        return None
    first, last = np.searchsorted(times, start_s, "right") - 1, np.searchsorted(times, end_s)
    times, watts = times[first : last + 1], watts[first : last + 1]
    longest = min(_LONGEST_GAP_S, (end_s - start_s) / _FEWEST_GAPS)
    if (np.diff(times) > longest).any() or (watts <= 0).any():
        return None
    at = np.concatenate([[start_s], times[(times > start_s) & (times < end_s)], [end_s]])
    return float(np.trapezoid(np.interp(at, times, watts), at))
