"""The same figures over a round's steady state only, without the time in which the load builds up and runs out."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from servelab.metrics import METRICS, Metric, Observations, Round, metric, present
from servelab.metrics.latency import e2el_ms
from servelab.metrics.throughput import per_second
from servelab.timeline import in_flight

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
        """Which of these moments lie in it: the start does not, the end does, so that neighbours share none."""
        moments = np.asarray(times, dtype=float)
        return np.asarray((moments > self.start_s) & (moments <= self.end_s))


@lru_cache(maxsize=16)
def steady_window(data: Round) -> Window | None:
    """From the first to the last moment with at least 90 % of the peak concurrency in flight.

    None where that is shorter than a mean request takes: a load that only builds up and runs out has no steady state.
    SGLang's `steady_state_serving` takes the longest stretch that never falls below its share of the peak; here falling
    below it for a moment does not end the window, since a closed loop of few slots does so after each request.
    """
    times, counts = in_flight(data.requests)
    steps = np.flatnonzero(counts >= SHARE_OF_PEAK * counts.max(initial=0)) if counts.any() else np.empty(0, int)
    if not len(steps) or data.streamed.empty:
        return None
    window = Window(float(times[steps[0]]), float(times[steps[-1] + 1]))
    return window if 1000 * window.seconds >= e2el_ms(data.streamed).mean() else None


def _ended(requests: pd.DataFrame, window: Window) -> pd.DataFrame:
    return requests[window.holds(requests.end_s)]


def _output_tokens(data: Round, window: Window) -> float:
    times, tokens = data.output_token_events
    return float(tokens[window.holds(times)].sum())


def _input_tokens(data: Round, window: Window) -> float:
    """A prompt counts whole in the moment it has been read: at the first event, as in guidellm."""
    read = data.successes.first_token_s.fillna(data.successes.end_s)
    return float(data.successes.input_tokens[window.holds(read)].sum())


@metric(
    "steady_duration_s",
    title="Length of the steady state",
    unit="seconds",
    formula="last − first moment with at least 90 % of the peak concurrency in flight; no observation where that is "
    "shorter than the mean E2EL, nor then for any other steady-state metric",
    equals="none: SGLang's `steady_state_serving` takes the longest stretch that never falls below its share",
    higher_is_better=None,
)
def _steady_duration_s(data: Round) -> Observations:
    window = steady_window(data)
    return np.array([window.seconds]) if window else np.empty(0)


def _register_rate(of: str, how: str, equals: str, amount: Callable[[Round, Window], float]) -> None:
    whole = METRICS.get(of)

    @metric(
        f"steady_{of}",
        title=f"{whole.title}, steady state",
        unit=whole.unit,
        formula=f"{how} / the steady state's length",
        equals=equals,
        higher_is_better=whole.higher_is_better,
        is_rate=True,
        based_on=(of, "itl_ms") if "tokens" in of else (of,),
    )
    def observe(data: Round) -> Observations:
        window = steady_window(data)
        return per_second(amount(data, window), window.seconds) if window else np.empty(0)


_register_rate(
    "requests_per_s",
    "successful requests that ended in the steady state",
    "SGLang `steady_state_serving`, within another window",
    lambda data, window: len(_ended(data.successes, window)),
)
_register_rate(
    "output_tokens_per_s",
    "output tokens that arrived in the steady state, whichever request they are of; an event counts for the request's "
    "output tokens / events",
    "SGLang `steady_state_serving`, within another window",
    _output_tokens,
)
_register_rate(
    "total_tokens_per_s",
    "output tokens that arrived in the steady state, and input tokens of the requests whose first event did,",
    "guidellm `tokens_per_second`, within another window",
    lambda data, window: _input_tokens(data, window) + _output_tokens(data, window),
)


def _register_latency(of: Metric) -> None:
    value = of.of_requests
    assert value is not None

    @metric(
        f"steady_{of.tag}",
        title=f"{of.title}, steady state",
        unit=of.unit,
        formula=f"`{of.tag}` of the successful requests that ended in the steady state",
        equals=f"that of `{of.tag}`, within the window",
        higher_is_better=of.higher_is_better,
        based_on=(of.tag,),
    )
    def observe(data: Round) -> Observations:
        window = steady_window(data)
        return present(value(_ended(data.streamed, window))) if window else np.empty(0)


for _tag in ("ttft_ms", "tpot_ms", "e2el_ms"):
    _register_latency(METRICS.get(_tag))
