"""The highest load at which the limits of `load.capacity` are met: one observation of a run that searched for it."""

from __future__ import annotations

import numpy as np

from servelab.metrics.definitions import Observations, Round, metric

_HOW = "Between the highest load that holds and the lowest that does not, on a logarithmic scale, where the limit is "


@metric(
    "capacity_per_s",
    title="Capacity",
    unit="requests per second",
    formula=f"{_HOW}reached. Of `request_rate` the rate at which requests were due; of `max_concurrency` the rate at "
    "which they were served at that many in flight",
    equals="none: the definitions of peers differ",
    higher_is_better=True,
    is_rate=True,
)
def _capacity_per_s(data: Round) -> Observations:
    return _found(data, "capacity_per_s")


@metric(
    "capacity_in_flight",
    title="Capacity in flight",
    unit="requests in flight",
    formula=f"{_HOW}reached, in requests in flight; only of `max_concurrency`",
    equals="none: the definitions of peers differ",
    higher_is_better=True,
)
def _capacity_in_flight(data: Round) -> Observations:
    return _found(data, "capacity_in_flight")


def _found(data: Round, tag: str) -> Observations:
    return np.array([data.capacity[tag]] if tag in data.capacity else [])
