"""Requests within every limit (SLO) that the study sets."""

from __future__ import annotations

import numpy as np

from servelab.metrics.definitions import METRICS, Observations, Round, metric
from servelab.metrics.definitions.throughput import per_second


@metric(
    "goodput_per_s",
    title="Goodput",
    unit="requests per second",
    formula="successful requests that meet every SLO of the study / duration. A request meets an SLO if its value is "
    "at most the limit, or if it has no value (TPOT of a single token); a request that streamed nothing meets none",
    equals="vLLM `request_goodput` with `--goodput`; AIPerf `goodput` counts a request without a value as missed",
    higher_is_better=True,
    is_rate=True,
    needs_slos=True,
    based_on=("ttft_ms", "tpot_ms", "e2el_ms"),
)
def _goodput_per_s(data: Round) -> Observations:
    return per_second(_good_requests(data), data.duration_s) if data.slos else np.empty(0)


@metric(
    "slo_attainment",
    title="SLO attainment",
    unit="fraction of requests",
    formula="successful requests that meet every SLO of the study, as goodput counts them, / requests",
    equals="the papers of DistServe and of AlpaServe",
    higher_is_better=True,
    needs_slos=True,
    based_on=("ttft_ms", "tpot_ms", "e2el_ms"),
)
def _slo_attainment(data: Round) -> Observations:
    return np.array([_good_requests(data) / len(data.requests)]) if data.slos else np.empty(0)


def _good_requests(data: Round) -> int:
    """Requests of a round that meet every SLO."""
    good = np.ones(len(data.streamed), dtype=bool)
    for tag, limit in data.slos.items():
        of_requests = METRICS.get(tag).of_requests
        assert of_requests is not None, f"{tag} is no metric of single requests"
        good &= ~(of_requests(data.streamed) > limit)
    return int(good.sum())
