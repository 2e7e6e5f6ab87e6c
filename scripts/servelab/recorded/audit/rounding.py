"""Whether a published number agrees with a computed one: to its last digit, or within what rounding explains."""

from __future__ import annotations

from typing import NamedTuple

from servelab.metrics.objective import Basis, per_basis
from servelab.recorded.audit import Verdict
from servelab.recorded.logs import Quantity
from servelab.study.recorded.published_claims import decimals

_SLACK = 1e-9
"""Relative; binary fractions are not exactly decimal ones."""


class Computed(NamedTuple):
    """A number computed from rounded figures, and the range in which it lies."""

    value: float
    low: float
    high: float


def judge(published: float, half_unit: float, computed: Computed) -> Verdict:
    """`confirmed` if the computed number rounds to the published one, whose last digit is worth twice `half_unit`;
    `rounded` if a number within its range does; `contradicted` otherwise."""
    room = half_unit + _SLACK * max(1.0, abs(published))
    if abs(published - computed.value) <= room:
        return "confirmed"
    return "rounded" if computed.low - room <= published <= computed.high + room else "contradicted"


def change_percent(side: Quantity, against: Quantity) -> Computed:
    """100 × (side / against − 1); `against` must be above 0 also after rounding."""
    return Computed(
        100 * (side.value / against.value - 1),
        100 * (side.low / against.high - 1),
        100 * (side.high / against.low - 1),
    )


def difference(side: Quantity, against: Quantity) -> Computed:
    """side − against."""
    return Computed(side.value - against.value, side.low - against.high, side.high - against.low)


def on_basis(quantity: Quantity, basis: Basis, accelerators: int, per_node: int) -> tuple[Quantity, str]:
    """The figure on a basis, and a note if that is an extrapolation."""
    factor, extrapolated = per_basis(basis, accelerators, per_node)
    note = f"×{factor:g} for a node of {per_node}, extrapolated: {accelerators} were run" if extrapolated else ""
    return quantity * factor, note


def in_digits(value: float, printed: str) -> str:
    """A number with the digits and the sign of a printed one: 27.4166 for `+27.7` is `+27.4`."""
    digits = decimals(printed)
    return f"{round(value, digits) + 0.0:{'+' if printed[0] == '+' else ''}.{digits}f}"  # + 0.0 makes −0 a 0


def plain(value: float) -> str:
    """A figure with all its digits."""
    return f"{value:.10g}"
