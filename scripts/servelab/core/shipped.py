"""What the checkout that this package is in ships beside it: locks, workloads, data sets, studies, the workflow.

A folder of studies need not be the checkout: it has `config/` of its own, and what it lacks is taken from here.
"""

from __future__ import annotations

from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[3]
"""The folder that contains `Snakefile`, `config/`, `envs/` and `scripts/`."""


def own_or_shipped(root: Path, name: str | Path) -> Path:
    """`name` below the folder `root`, or below the checkout if only the checkout has it."""
    own, shipped = root / name, CHECKOUT / name
    return shipped if shipped.exists() and not own.exists() else own
