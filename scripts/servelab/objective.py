"""What a figure counts for: per deployment as run, per accelerator, or per node."""

from __future__ import annotations

from typing import Literal

Basis = Literal["deployment", "accelerator", "node"]
BASES: tuple[Basis, ...] = ("deployment", "accelerator", "node")


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
