"""Whether a published number agrees with a computed one, and whether a log's token rates are tokens / duration."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from servelab.metrics.objective import Basis, per_basis
from servelab.recorded.audit import Verdict
from servelab.recorded.logs import Logs, Quantity
from servelab.recorded.readers import VALUE, Block
from servelab.recorded.readers.consistency import ValueRange, total
from servelab.study.recorded.published_claims import decimals

_SLACK = 1e-9
"""Relative; binary fractions are not exactly decimal ones."""
AMOUNTS = {"output_tokens_per_s": ("output_tokens",), "total_tokens_per_s": ("input_tokens", "output_tokens")}
"""Rate → what it counts."""


def judge(published: float, half_unit: float, computed: Quantity) -> Verdict:
    """`confirmed` if the computed number rounds to the published one, whose last digit is worth twice `half_unit`;
    `rounded` if a number within its range does; `contradicted` otherwise."""
    room = half_unit + _SLACK * max(1.0, abs(published))
    if abs(published - computed.value) <= room:
        return "confirmed"
    return "rounded" if computed.low - room <= published <= computed.high + room else "contradicted"


def change_percent(side: Quantity, against: Quantity) -> Quantity:
    """100 × (side / against − 1); `against` must be above 0 also after rounding."""
    pairs = ((side.value, against.value), (side.low, against.high), (side.high, against.low))
    return Quantity(*(100 * (one / other - 1) for one, other in pairs))


def difference(side: Quantity, against: Quantity) -> Quantity:
    """side − against."""
    return Quantity(side.value - against.value, side.low - against.high, side.high - against.low)


def on_basis(quantity: Quantity, basis: Basis, accelerators: int, per_node: int) -> tuple[Quantity, str]:
    """The figure on a basis, and a note if that is an extrapolation."""
    factor, extrapolated = per_basis(basis, accelerators, per_node)
    note = f"×{factor:g} for a node of {per_node}, extrapolated: {accelerators} were run" if extrapolated else ""
    return quantity.times(factor), note


def in_digits(value: float, printed: str) -> str:
    """A number with the digits and the sign of a printed one: 27.4166 for `+27.7` is `+27.4`."""
    digits = decimals(printed)
    return f"{round(value, digits) + 0.0:{'+' if printed[0] == '+' else ''}.{digits}f}"  # + 0.0 makes −0 a 0


def plain(value: float) -> str:
    """A figure with all its digits."""
    return f"{value:.10g}"


class TokenRate(NamedTuple):
    """A token rate that a log prints, and tokens / duration of the same log."""

    printed: float
    computed: float
    agrees: bool
    """Whether rounding explains the difference."""


def token_rate(block: Block, metric: str) -> TokenRate | None:
    """None for other metrics, or if the log lacks a part."""
    figures = {each.metric: each for each in block.figures if each.statistic == VALUE and each.value is not None}
    parts = AMOUNTS.get(metric, ())
    if not parts or not block.value("duration_s") or not figures.keys() >= {metric, *parts}:
        return None
    ranges = {name: ValueRange.around(each.value or 0.0, each.half_unit) for name, each in figures.items()}
    value = {name: each.value or 0.0 for name, each in figures.items()}
    agrees = ranges[metric].meets(total(ranges, parts) / ranges["duration_s"])
    return TokenRate(value[metric], sum(value[part] for part in parts) / value["duration_s"], agrees)


def unsound_rates(block: Block) -> dict[str, float]:
    """Token rates that the log prints otherwise than its tokens and duration give, and what these give."""
    rates = {metric: token_rate(block, metric) for metric in AMOUNTS}
    return {metric: rate.computed for metric, rate in rates.items() if rate is not None and not rate.agrees}


def honest_rates(logs: Logs, candidates: Iterable[str], workload: str, metric: str) -> dict[str, float] | None:
    """Candidate → tokens / duration, its mean over rounds; None unless a rate that some log prints differs from it."""
    rates, agree = {}, True
    for name in candidates:
        found = [token_rate(block, metric) for block in logs.rounds(name, workload)]
        computed = [rate.computed for rate in found if rate is not None]
        if not computed or len(computed) < len(found):
            return None
        agree &= all(rate is not None and rate.agrees for rate in found)
        rates[name] = sum(computed) / len(computed)
    return None if agree else rates
