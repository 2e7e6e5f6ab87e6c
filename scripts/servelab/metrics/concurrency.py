"""How the load lay on the server: requests in flight, the rate asked for and the rate achieved."""

from __future__ import annotations

import numpy as np
import pandas as pd

from servelab.metrics import Observations, Round, metric
from servelab.metrics.latency import e2el_ms
from servelab.metrics.throughput import per_second
from servelab.timeline import in_flight


def is_open_loop(requests: pd.DataFrame) -> bool:
    """Whether arrivals were spread over time: no half of the requests was scheduled for one and the same moment.

    In a closed loop all are due at once (with a ramp-up, all but the first few) and sent as slots become free.
    """
    return len(requests) > 1 and requests.scheduled_s.value_counts().max() < len(requests) / 2


@metric(
    "concurrency",
    title="Concurrency",
    unit="requests in flight",
    formula="sum of the E2EL of successful requests / duration: the mean over time (Little's law: request throughput × "
    "mean E2EL)",
    equals="SGLang `concurrency`",
    higher_is_better=None,
    based_on=("e2el_ms",),
)
def _concurrency(data: Round) -> Observations:
    return per_second(e2el_ms(data.streamed).sum() / 1000, data.duration_s)


@metric(
    "peak_concurrency",
    title="Peak concurrency",
    unit="requests in flight",
    formula="most requests in flight at any moment, each from its send up to its end, failed ones included",
    equals="guidellm `request_concurrency` maximum, of all requests; vLLM `max_concurrent_requests` counts those that "
    "touch a bucket of one second, which can be more than were in flight at once",
    higher_is_better=None,
)
def _peak_concurrency(data: Round) -> Observations:
    return np.array([in_flight(data.requests).counts.max(initial=0)])


@metric(
    "request_rate_asked_per_s",
    title="Request rate asked for",
    unit="requests per second",
    formula="(requests − 1) / (last scheduled − first scheduled); no observation where at least half were scheduled at "
    "once, as in a closed loop",
    equals="none: vLLM and SGLang print the rate as configured, not as drawn",
    higher_is_better=None,
)
def _request_rate_asked_per_s(data: Round) -> Observations:
    return _rate(data, data.requests.scheduled_s)


@metric(
    "request_rate_sent_per_s",
    title="Request rate achieved",
    unit="requests per second",
    formula="(requests sent − 1) / (last send − first send); no observation where there is none for the rate asked for",
    equals="none",
    higher_is_better=None,
)
def _request_rate_sent_per_s(data: Round) -> Observations:
    return _rate(data, data.requests.sent_s.dropna())


def _rate(data: Round, times: pd.Series[float]) -> Observations:
    span = float(times.max() - times.min()) if len(times) > 1 else 0.0
    if not is_open_loop(data.requests) or span == 0:
        return np.empty(0)
    return per_second(len(times) - 1, span)


@metric(
    "schedule_delay_ms",
    title="Schedule delay",
    unit="milliseconds",
    formula="client began to connect − time scheduled, of all requests it started; no observation in a closed loop. "
    "With `max_concurrency`, waiting for a free slot is in it: only without a limit is it the client's own lateness",
    equals="vLLM `client_queue_time` (0.30 and later); guidellm `request_dispatch_delay`",
    higher_is_better=False,
)
def _schedule_delay_ms(data: Round) -> Observations:
    if not is_open_loop(data.requests):
        return np.empty(0)
    started = data.requests[data.requests.started_s.notna()]
    return (1000 * (started.started_s - started.scheduled_s)).to_numpy(np.float64)
