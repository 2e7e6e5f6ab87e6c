"""The load on the server: requests in flight, the requested rate and the achieved rate."""

from __future__ import annotations

import numpy as np

from servelab.metrics.definitions import Observations, Round, metric
from servelab.metrics.definitions.latency import e2el_ms
from servelab.metrics.definitions.throughput import per_second
from servelab.metrics.tables.io import RecordArray, arrived, known, present


def is_open_loop(requests: RecordArray) -> bool:
    """Whether arrivals were spread over time: fewer than half of the requests were scheduled for any one moment.

    In a closed loop all are due at once (with a ramp-up, all but the first few) and sent as slots become free. Later
    turns of conversations do not count: they follow an answer in either.
    """
    requests = arrived(requests)
    _, counts = np.unique(present(requests["scheduled_s"]), return_counts=True)
    return len(requests) > 1 and bool(counts.max(initial=1) < len(requests) / 2)


@metric("concurrency")
def _concurrency(data: Round) -> Observations:
    return per_second(float(np.nansum(e2el_ms(data.streamed))) / 1000, data.duration_s)


@metric("peak_concurrency")
def _peak_concurrency(data: Round) -> Observations:
    return np.array([data.in_flight.counts.max(initial=0)])


@metric("request_rate_asked_per_s")
def _request_rate_asked_per_s(data: Round) -> Observations:
    return _rate(data, data.requests["scheduled_s"])


@metric("request_rate_sent_per_s")
def _request_rate_sent_per_s(data: Round) -> Observations:
    return _rate(data, present(data.requests["sent_s"]))


def _rate(data: Round, times: Observations) -> Observations:
    span = float(times.max() - times.min()) if len(times) > 1 else 0.0
    if not is_open_loop(data.requests) or span == 0:
        return np.empty(0)
    return per_second(len(times) - 1, span)


@metric("schedule_delay_ms")
def _schedule_delay_ms(data: Round) -> Observations:
    if not is_open_loop(data.requests):
        return np.empty(0)
    started = known(data.requests, "started_s")
    return np.asarray(1000 * (started["started_s"] - started["scheduled_s"]))
