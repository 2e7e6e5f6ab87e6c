"""The same figures for a round's steady state only, without the time in which the load builds up and runs out."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from servelab.metrics.definitions import METRICS, Observations, Round, metric, round_metrics
from servelab.metrics.definitions.load import e2el_ms, per_second
from servelab.metrics.tables.io import RecordArray, mean, present

SHARE_OF_PEAK = 0.9


class Window(NamedTuple):
    """A part of a round."""

    start_s: float
    end_s: float

    @property
    def seconds(self) -> float:
        """Its length."""
        return self.end_s - self.start_s

    def holds(self, times: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """Which of these moments are in it: the end is, the start is not, so that adjacent windows share none."""
        moments = np.asarray(times, dtype=float)
        return np.asarray((moments > self.start_s) & (moments <= self.end_s))


@lru_cache(maxsize=16)
def steady_window(data: Round) -> Window | None:
    """From the first to the last moment with at least 90 % of the peak concurrency in flight.

    None if that is shorter than the mean request: a load that only builds up and runs out has no steady state.
    SGLang's `steady_state_serving` takes the longest stretch that never falls below its share of the peak. Here a short
    drop does not end the window, because a closed loop of few slots drops after each request.
    """
    times, counts = data.in_flight
    steps = np.flatnonzero(counts >= SHARE_OF_PEAK * counts.max(initial=0)) if counts.any() else np.empty(0, int)
    if not len(steps) or not len(data.streamed):
        return None
    window = Window(float(times[steps[0]]), float(times[steps[-1] + 1]))
    return window if 1000 * window.seconds >= mean(e2el_ms(data.streamed)) else None


def _ended(requests: RecordArray, window: Window) -> RecordArray:
    return requests[window.holds(requests["end_s"])]


def _output_tokens(data: Round, window: Window) -> float:
    times, tokens = data.output_token_events
    return float(tokens[window.holds(times)].sum())


def _input_tokens(data: Round, window: Window) -> float:
    """A prompt counts as a whole at its first event, when it has been read, as in guidellm."""
    first = data.successes["first_token_s"]
    read = np.where(np.isnan(first), data.successes["end_s"], first)
    return float(np.nansum(data.successes["input_tokens"][window.holds(read)]))


def _rate(amount: Callable[[Round, Window], float], data: Round) -> float | None:
    window = steady_window(data)
    return per_second(amount(data, window), window.seconds) if window else None


_AMOUNTS: dict[str, Callable[[Round, Window], float]] = {
    "requests": lambda data, window: len(_ended(data.successes, window)),
    "output_tokens": _output_tokens,
    "total_tokens": lambda data, window: _input_tokens(data, window) + _output_tokens(data, window),
}
round_metrics({f"steady_{name}_per_s": partial(_rate, amount) for name, amount in _AMOUNTS.items()})
round_metrics({"steady_duration_s": lambda data: window.seconds if (window := steady_window(data)) else None})


def _register_latency(tag: str) -> None:
    value = METRICS.get(tag).of_requests
    assert value is not None

    @metric(f"steady_{tag}")
    def observe(data: Round) -> Observations:
        window = steady_window(data)
        return present(value(_ended(data.streamed, window))) if window else np.empty(0)


for _tag in ("ttft_ms", "tpot_ms", "e2el_ms"):
    _register_latency(_tag)
