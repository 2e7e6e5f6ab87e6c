"""The basis of a figure (deployment as run, accelerator, or node), and the limits that a winner must meet."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import numpy as np

from servelab.core.run_spec import Statistic
from servelab.metrics.definitions import METRICS, RunData

PERCENTILES: dict[Statistic, float] = {"median": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
"""Statistic that is a percentile → the share of the observations that is at most as large."""
CONFIDENCE = 0.95


class Beyond(NamedTuple):
    """How many of a run's observations are beyond a limit: above an upper limit, below a lower one."""

    observations: int
    beyond: int


def allowed_share(statistic: Statistic, *, is_floor: bool) -> float:
    """Share of the observations that may be beyond a limit on a percentile: 0.01 above an upper limit on p99.

    Below a lower limit (`is_floor`) on p99 it is 0.99.
    """
    return PERCENTILES[statistic] if is_floor else 1 - PERCENTILES[statistic]


def highest_share(found: Beyond) -> float:
    """One-sided upper 95 % bound of Clopper and Pearson on the share of all observations that is beyond the limit.

    It is the share with which so few beyond the limit, or fewer, have a probability of 5 %; 1 if all are beyond it.
    """
    observations, beyond = found
    if beyond >= observations:
        return 1.0
    low, high = beyond / observations, 1.0
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if _at_most(beyond, observations, middle) > 1 - CONFIDENCE else (low, middle)
    return high


def lowest_share(found: Beyond) -> float:
    """One-sided lower 95 % bound on the same share."""
    return 1 - highest_share(Beyond(found.observations, found.observations - found.beyond))


def observations_needed(allowed: float, beyond: int = 0) -> int:
    """Fewest observations that show a limit to hold if `beyond` of them are beyond it: 299 for p99 and none."""
    low, high = beyond, beyond + 1
    while _at_most(beyond, high, allowed) > 1 - CONFIDENCE:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _at_most(beyond, middle, allowed) > 1 - CONFIDENCE else (low, middle)
    return high


def _at_most(successes: int, trials: int, probability: float) -> float:
    """The binomial distribution's probability of at most so many successes, fewer than `trials`, in so many trials."""
    if probability >= 1:
        return 0.0
    counts = np.arange(1, successes + 1)
    ratios = np.log((trials - counts + 1) / counts) + math.log(probability / (1 - probability))
    logarithms = trials * math.log1p(-probability) + np.concatenate([[0.0], np.cumsum(ratios)])
    most = float(logarithms.max())
    return min(1.0, math.exp(most) * float(np.exp(logarithms - most).sum()))


def count_beyond(run: RunData, constraints: Mapping[str, Mapping[Statistic, float]]) -> list[dict[str, object]]:
    """For each limit on a percentile: `metric`, `statistic`, `observations`, and how many of them are `beyond` it.

    `constraints` is metric → statistic → limit. Several observations of one request, such as the gaps between its
    tokens, depend on each other. So there are never more observations than requests; the share beyond the limit stays
    the same, rounded up to a whole one.
    """
    rows: list[dict[str, object]] = []
    requests = sum(len(data.requests) for data in run.rounds.values())
    for tag, limits in constraints.items():
        values = np.concatenate([[], *run.observations[tag].values()])
        for statistic, limit in limits.items():
            if statistic in PERCENTILES:
                beyond = int((values < limit if METRICS.get(tag).higher_is_better else values > limit).sum())
                observations = min(values.size, requests)
                if observations < values.size:
                    beyond = math.ceil(beyond * observations / values.size)
                rows.append(
                    {"metric": tag, "statistic": statistic, "observations": observations, "beyond": beyond},
                )
    return rows


Basis = Literal["deployment", "accelerator", "node"]
BASES: tuple[Basis, ...] = ("deployment", "accelerator", "node")


def per_basis(basis: Basis, accelerators: int, per_node: int) -> tuple[float, bool]:
    """The factor from a deployment's rate to a basis, and whether the result is extrapolated.

    A node has room for `per_node // accelerators` deployments. If that is more than one, nothing that large was run,
    and the figure is an extrapolation. Of a deployment over several nodes, a node has its share.
    """
    if basis == "deployment":
        return 1.0, False
    if basis == "accelerator":
        return 1.0 / accelerators, False
    if accelerators > per_node:
        return per_node / accelerators, False
    deployments = per_node // accelerators
    return float(deployments), deployments > 1


def missed_constraints(
    constraints: Mapping[str, Mapping[Statistic, float]],
    by_metric: Mapping[str, Mapping[str, Any]],
    counts: Mapping[tuple[str, str], Beyond] | None,
) -> str | None:
    """Which constraints a run does not keep, and why; None if it keeps all of them.

    `by_metric` has the run's rows of schemas.METRICS by metric, `counts` how many observations are beyond each limit on
    a percentile, by metric and statistic; None if only printed figures are known. With counts, a percentile keeps its
    limit only with 95 % confidence. Any other statistic is compared without its noise. A figure that could not be
    computed counts as missed.
    """
    texts = []
    for metric, limits in constraints.items():
        is_floor = bool(METRICS.get(metric).higher_is_better)
        row = by_metric.get(metric, {})
        for statistic, limit in limits.items():
            wanted = f"{metric} {statistic} must be {'at least' if is_floor else 'at most'} {limit:g}"
            value = row.get(statistic)
            if value is None:
                texts.append(f"{wanted} and could not be computed")
            elif statistic not in PERCENTILES or counts is None:
                if value < limit if is_floor else value > limit:
                    texts.append(f"{wanted} and is {value:.4g}{_away(value, limit)}{_noise(statistic, row, counts)}")
            else:
                found, allowed = counts[metric, statistic], allowed_share(statistic, is_floor=is_floor)
                if lowest_share(found) > allowed:
                    texts.append(f"{wanted} and is {value:.4g}{_away(value, limit)}")
                elif highest_share(found) > allowed:
                    side = "below" if is_floor else "above"
                    texts.append(f"{wanted} and is {value:.4g}; {_not_shown(found, allowed, side)}")
    return "; ".join(texts) or None


def _away(value: float, limit: float) -> str:
    return f", {100 * abs(value / limit - 1):.1f} % {'below' if value < limit else 'above'} it" if limit else ""


def _noise(statistic: str, row: Mapping[str, Any], counts: object) -> str:
    """The known noise of a figure that is compared without it."""
    if statistic in PERCENTILES:
        return " (as printed; no bound is known)" if counts is None else ""
    low, high = row.get("ci95_low"), row.get("ci95_high")
    is_mean = statistic == "mean" and low is not None and high is not None
    return f" (95 % interval {low:.4g} to {high:.4g})" if is_mean else ""


def _not_shown(found: Beyond, allowed: float, side: str) -> str:
    return (
        f"this cannot be shown with so few requests: {found.beyond:,} of {found.observations:,} are {side} it, so up "
        f"to {100 * highest_share(found):.3g} % may be (95 % confidence); with as many {side} it, "
        f"{observations_needed(allowed, found.beyond):,} are needed"
    )
