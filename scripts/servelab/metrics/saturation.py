"""Whether a server kept up with the rate at which requests were due."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from servelab.metrics.definitions.concurrency import is_open_loop
from servelab.metrics.statistics import t_quantile
from servelab.metrics.tables.record_array import RecordArray, arrived, present

QUEUE_GROWS = 0.8
"""A server that serves a smaller share of the rate is saturated; above, a queue may come and go."""

_PIECES = 10
_SETTLED = 0.2
"""Share of the arrivals before the test begins: a queue that fills at first is no trend."""
_CONFIDENCE = 0.95
_FEWEST = 40
_SMALL = 0.02
"""A queue that grows by less than this share of the arrivals does not count, however certain it is."""


class Growth(NamedTuple):
    """How the requests in flight grew while requests arrived."""

    share: float
    """Requests by which they grew / requests that arrived meanwhile: 1 − rate served / rate of arrival."""
    is_trend: bool
    """Whether that is more than chance and more than 2 %."""


def queue_growth(every: RecordArray) -> Growth | None:
    """Whether the requests in flight kept growing; `every` are the counted requests of a round, late ones included.

    The time from a fifth of the arrivals to the last is cut into 10 pieces. A server that cannot keep up adds to its
    queue in each, and what it adds in one piece does not depend on the others: Student's test on the 10 increases, one
    sided, at 5 %. Below saturation an increase is followed by a decrease, so that the test is on the safe side. None of
    fewer than 40 requests, or if they were not sent over time.
    """
    requests = arrived(every)
    if len(requests) < _FEWEST or not is_open_loop(requests):
        return None
    due, ended = np.sort(present(requests["scheduled_s"])), np.sort(present(requests["end_s"]))
    edges = np.linspace(due[int(_SETTLED * len(due))], due[-1], _PIECES + 1)
    arrivals = np.searchsorted(due, edges, "right")
    increases = np.diff(arrivals - np.searchsorted(ended, edges, "right"))
    mean, error = float(increases.mean()), float(increases.std(ddof=1)) / _PIECES**0.5
    share = float(increases.sum()) / max(1, int(arrivals[-1] - arrivals[0]))
    is_certain = mean > t_quantile(_CONFIDENCE, _PIECES - 1) * error
    return Growth(share, is_certain and share > _SMALL)


def is_saturated(every: RecordArray) -> bool:
    """Whether the server could not keep up in a round: by the trend of its queue, or if that cannot be tested, 80 %."""
    growth = queue_growth(every)
    if growth is not None:
        return growth.is_trend
    share = share_served([every])
    return share is not None and share < QUEUE_GROWS


def share_served(rounds: Iterable[RecordArray]) -> float | None:
    """Rate at which requests ended over that at which they were due, both from the 10th to the 90th percentile.

    `rounds` are the counted requests of each round. The lowest of the rounds; None if the load was not sent over time.
    """
    shares = []
    for every in rounds:
        requests = arrived(every)
        arrivals, ends = (np.percentile(requests[column], [10, 90]) for column in ("scheduled_s", "end_s"))
        if is_open_loop(requests) and ends[1] > ends[0]:
            shares.append(float((arrivals[1] - arrivals[0]) / (ends[1] - ends[0])))
    return min(shares, default=None)
