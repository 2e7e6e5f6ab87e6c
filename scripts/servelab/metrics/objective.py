"""The basis of a figure (deployment as run, accelerator, or node), and the limits that a winner must meet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from servelab.core.run_spec import Statistic
from servelab.metrics.definitions import METRICS
from servelab.metrics.percentile_limits import (
    PERCENTILES,
    Beyond,
    allowed_share,
    highest_share,
    lowest_share,
    observations_needed,
)

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
    *,
    is_part: bool = False,
) -> str | None:
    """Which constraints a run does not keep, and why; None if it keeps all of them.

    `by_metric` has the run's rows of schemas.METRICS by metric, `counts` how many observations are beyond each limit on
    a percentile, by metric and statistic. A percentile keeps its limit only if this holds with 95 % confidence
    (`servelab.metrics.percentile_limits`). The text distinguishes a percentile that is clearly beyond its limit from
    one that cannot be shown with so few requests. For a run on a part of the workload (`is_part`), which has fewer
    requests, the latter is not counted. Any other statistic is compared as it is, without its noise. Without `counts`
    (None: only printed figures are known), a percentile is too. A figure that could not be computed counts as missed.
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
                elif highest_share(found) > allowed and not is_part:
                    side = "below" if is_floor else "above"
                    texts.append(f"{wanted} and is {value:.4g}; {_not_shown(found, allowed, side)}")
    return "; ".join(texts) or None


def _away(value: float, limit: float) -> str:
    return f", {100 * abs(value / limit - 1):.1f} % {'below' if value < limit else 'above'} it" if limit else ""


def _noise(statistic: str, row: Mapping[str, Any], counts: object) -> str:
    """What is known of the noise of a figure that is compared without it."""
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
