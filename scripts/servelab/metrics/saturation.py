"""Whether a server kept up with the rate at which requests were due."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from servelab.metrics.definitions.concurrency import is_open_loop
from servelab.metrics.tables.record_array import RecordArray, arrived

QUEUE_GROWS = 0.8
"""A server that serves a smaller share of the rate is saturated; above, a queue may come and go."""


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
