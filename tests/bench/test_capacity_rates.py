"""How near a searched capacity is to that of a made server, and how often the growth of a queue is seen."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
import pytest
from harness import publish
from unit.made_queue import served

from servelab.core.run_spec import CapacitySpec
from servelab.metrics.capacity import CapacityStep, find_capacity, is_saturated, judge, next_load

pytestmark = pytest.mark.bench

STUDIES = 100
ROUND_SD = 0.01
"""By how much the server's speed differs from step to step."""
TRUTH_ROUNDS = 100
NEAR = 0.05
LEAST = 0.95
SERVED_PER_S = 16.0

CASES = (
    ("request_rate", "ttft_ms", "mean", 300.0, 1000, 3),
    ("request_rate", "ttft_ms", "p90", 1000.0, 1000, 3),
    ("request_rate", "ttft_ms", "p99", 2000.0, 1000, 3),
    ("request_rate", "ttft_ms", "p99", 2000.0, 3000, 3),
    ("request_rate", "ttft_ms", "p99", 2000.0, 3000, 5),
    ("request_rate", "", "", 0.0, 1000, 3),
    ("max_concurrency", "ttft_ms", "p90", 1000.0, 1000, 1),
    ("max_concurrency", "ttft_ms", "p99", 2000.0, 1000, 1),
)
"""Of what, limited metric, statistic, limit (0: none), requests, starts."""


def searched(
    spec: CapacitySpec,
    draw: np.random.Generator,
    work: np.ndarray,
    round_sd: float,
    gaps: np.ndarray,
) -> list[CapacityStep]:
    """The steps of a search on a start with these arrivals."""
    steps = list[CapacityStep]()
    while (load := next_load(spec, steps)) is not None:
        speed = float(np.exp(draw.normal(0, round_sd)))
        level = {"rate": load} if spec.of == "request_rate" else {"in_flight": int(load)}
        steps.append(judge(spec, load, served(gaps, work / speed, **level)))
    return steps


def capacity(spec: CapacitySpec, draw: np.random.Generator, work: np.ndarray, round_sd: float) -> tuple[float, int]:
    """Capacity found on a start with arrivals of its own, and the steps it took."""
    steps = searched(spec, draw, work, round_sd, draw.exponential(1, len(work)))
    found = find_capacity(spec, steps)
    assert found is not None
    return (found.requests_per_s if spec.of == "request_rate" else found.load), len(steps)


def case_rows() -> Iterator[dict[str, object]]:
    draw = np.random.default_rng(20)
    for of, metric, statistic, limit, requests, starts in CASES:
        slos = {metric: {statistic: limit}} if limit else {}
        spec = CapacitySpec(of=of, slos=slos)
        work = draw.gamma(2, 0.5, requests)
        work /= work.mean()
        truth = float(np.median([capacity(spec, draw, work, 0.0)[0] for _ in range(TRUTH_ROUNDS)]))
        found, steps = [], []
        for _ in range(STUDIES):
            of_starts = [capacity(spec, draw, work, ROUND_SD) for _ in range(starts)]
            found.append(float(np.mean([value for value, _ in of_starts])) / truth - 1)
            steps += [count for _, count in of_starts]
        yield {
            "of": of,
            "limit": f"{metric} {statistic} {limit:g}" if limit else "none: saturation",
            "requests": requests,
            "starts": starts,
            "capacity": truth,
            "within 5 %": sum(abs(each) <= NEAR for each in found),
            "sd, %": 100 * float(np.std(found)),
            "mean error, %": 100 * float(np.mean(found)),
            "steps": float(np.mean(steps)),
        }


def trend_rows() -> Iterator[dict[str, object]]:
    for requests in (100, 400, 1600):
        draw, row = np.random.default_rng(7), {"requests": requests}
        for share in (0.5, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3):
            row[f"at {share:g} of what it serves"] = sum(
                is_saturated(
                    served(draw.exponential(1, requests), draw.gamma(2, 0.5, requests), rate=share * SERVED_PER_S)
                )
                for _ in range(STUDIES)
            )
        yield row


def test_capacity_of_a_made_server():
    found, trends = pd.DataFrame(case_rows()), pd.DataFrame(trend_rows())
    publish(
        "capacity-search",
        f"Searched capacity, {STUDIES} studies a row",
        {"Capacity": found, "Called saturated": trends},
    )
    assert (trends["at 0.8 of what it serves"] <= (1 - LEAST) * STUDIES).all()
    assert (found["within 5 %"] >= LEAST * STUDIES).all()
