"""What a round took from the prefix cache: one observation per round, none if the server does not report it."""

from __future__ import annotations

import numpy as np

from servelab.metrics.cached_input import cached_share
from servelab.metrics.definitions import Observations, Round, metric


@metric(
    "cached_input_percent",
    title="Prompt tokens from the prefix cache",
    unit="percent",
    formula="100 x prompt tokens from the prefix cache / prompt tokens of successful requests, chat template included; "
    "the higher of what the answers' `usage` and the server's counters say",
    equals="none",
    higher_is_better=None,
)
def _cached_input_percent(data: Round) -> Observations:
    share = cached_share(data.successes, data.telemetry)
    return np.array([] if share is None else [100 * share])
