"""Energy of a round, from telemetry: one observation per round, none if it is not known for the whole duration."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from servelab.metrics.definitions import Observations, Round, metric
from servelab.metrics.tables.io import RecordArray, maximum

_LONGEST_GAP_S = 10.0
_FEWEST_GAPS = 4
"""Power is not known if there are fewer intervals between readings in a round, or if one is longer than the above."""


@metric("energy_per_output_token_j")
def _energy_per_output_token_j(data: Round) -> Observations:
    return _per(data.output_tokens, data)


@metric("energy_per_token_j")
def _energy_per_token_j(data: Round) -> Observations:
    return _per(data.tokens, data)


@metric("mean_power_w")
def _mean_power_w(data: Round) -> Observations:
    return _per(data.duration_s, data)


def _per(amount: float, data: Round) -> Observations:
    joules = _joules(data)
    return np.array([joules / amount] if joules is not None and amount > 0 else [])


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
    joules = [
        _by_counter(counters[device], start_s, end_s)
        if device in counters
        else _by_power(powers[device], start_s, end_s)
        for device in devices
    ]
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
