"""Requests served well enough: within every limit (SLO) that the study sets."""

from __future__ import annotations

import numpy as np

from servelab.metrics import METRICS, Observations, Round, metric
from servelab.metrics.throughput import per_second


@metric(
    "goodput_per_s",
    title="Goodput",
    unit="requests per second",
    formula="successful requests that meet every SLO of the study / duration. A request meets an SLO where its value "
    "is no more than the limit, or where it has none (TPOT of a single token); one that streamed nothing meets none",
    equals="vLLM `request_goodput` with `--goodput`; AIPerf `goodput` counts a request without a value as missed",
    higher_is_better=True,
    is_rate=True,
    needs_slos=True,
    based_on=("ttft_ms", "tpot_ms", "e2el_ms"),
)
def _goodput_per_s(data: Round) -> Observations:
    if not data.slos:
        return np.empty(0)
    good = np.ones(len(data.streamed), dtype=bool)
    for tag, limit in data.slos.items():
        of_requests = METRICS.get(tag).of_requests
        assert of_requests is not None, f"{tag} is no metric of single requests"
        good &= ~(of_requests(data.streamed) > limit).to_numpy(bool)
    return per_second(good.sum(), data.duration_s)
