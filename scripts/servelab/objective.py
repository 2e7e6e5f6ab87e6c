"""What a figure counts for (per deployment as run, per accelerator, per node), and limits that a winner must keep."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from servelab.metrics import METRICS

Basis = Literal["deployment", "accelerator", "node"]
BASES: tuple[Basis, ...] = ("deployment", "accelerator", "node")
Statistic = Literal["mean", "median", "p90", "p95", "p99", "minimum", "maximum"]


def per_basis(basis: Basis, accelerators: int, per_node: int) -> tuple[float, bool]:
    """The factor from a deployment's rate to a basis, and whether the result is extrapolated.

    A node holds `per_node // accelerators` deployments side by side; where that is more than one, nothing that large
    was run and the figure is an extrapolation.
    """
    if basis == "deployment":
        return 1.0, False
    if basis == "accelerator":
        return 1.0 / accelerators, False
    deployments = per_node // accelerators
    return float(deployments), deployments > 1


def missed_constraints(
    constraints: Mapping[str, Mapping[Statistic, float]], by_metric: Mapping[str, Mapping[str, Any]]
) -> str | None:
    """Which constraints a run misses, and by how much; None where it keeps all of them.

    `by_metric` has the run's rows of schemas.METRICS by metric. What could not be computed is missed.
    """
    texts = []
    for metric, limits in constraints.items():
        is_floor = bool(METRICS.get(metric).higher_is_better)
        for statistic, limit in limits.items():
            wanted = f"{metric} {statistic} must be {'at least' if is_floor else 'at most'} {limit:g}"
            value = by_metric.get(metric, {}).get(statistic)
            if value is None:
                texts.append(f"{wanted} and could not be computed")
            elif value < limit if is_floor else value > limit:
                share = f", {100 * abs(value / limit - 1):.1f} % {'below' if is_floor else 'above'} it" if limit else ""
                texts.append(f"{wanted} and is {value:.4g}{share}")
    return "; ".join(texts) or None
