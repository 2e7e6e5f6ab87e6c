"""Agreement: greedy answers that are equal to the baseline's.

Another start of the same baseline gives the floor: what nondeterminism alone changes.
"""

from __future__ import annotations

from collections.abc import Mapping

from servelab.answers.comparison import (
    CANNOT_TELL,
    CHANGES,
    SAME,
    Allowed,
    Comparison,
    InstrumentFinding,
    PairedShare,
    mcnemar_p,
    paired_difference,
    share_interval,
)
from servelab.answers.instruments import INSTRUMENTS
from servelab.answers.question import Answer


def edit_distance(one: str, other: str) -> int:
    """Levenshtein distance, by bit vectors: Myers 1999, J. ACM 46, 395; Hyyrö 2001 for whole texts."""
    start = first_difference(one, other)
    if start is None:
        return 0
    one, other = one[start:], other[start:]
    if not one or not other:
        return len(one) + len(other)
    where: dict[str, int] = {}
    for position, character in enumerate(one):
        where[character] = where.get(character, 0) | 1 << position
    full, last = (1 << len(one)) - 1, 1 << (len(one) - 1)
    rises, falls, distance = full, 0, len(one)
    for character in other:
        equal = where.get(character, 0)
        diagonal = (((equal & rises) + rises) ^ rises) | equal | falls
        up = falls | (full & ~(diagonal | rises))
        down = rises & diagonal
        distance += bool(up & last) - bool(down & last)
        up, down = (up << 1 | 1) & full, (down << 1) & full
        rises, falls = down | (full & ~(diagonal | up)), up & diagonal
    return distance


def first_difference(one: str, other: str) -> int | None:
    """The first position, from 0, where the texts differ; None if they are equal."""
    pairs = enumerate(zip(one, other, strict=False))
    return None if one == other else next((at for at, (x, y) in pairs if x != y), min(len(one), len(other)))


class Agreement:
    """See the module."""

    name = "agreement"

    def judges(self, allowed: Allowed) -> bool:
        return allowed.least_agreement_percent is not None

    def find(self, comparison: Comparison) -> InstrumentFinding | None:
        """See `Instrument.find`. A missing answer is not equal to any."""
        total = len(comparison.questions)
        equal = _equal(comparison, comparison.candidate)
        other = None if comparison.floor is None else _equal(comparison, comparison.floor)
        share = share_interval(len(equal), total)
        floor = None if other is None else 100 * len(other) / total
        limit = comparison.allowed.least_agreement_percent
        decides = share_interval(len(equal), total, comparison.confidence)
        verdict, reason = (None, "reported") if limit is None else _judge(decides, limit)
        found = f"{len(equal):,} of {total:,} answers are equal ({100 * share.value:.1f} %"
        found += ", a second start of the baseline was not measured)" if floor is None else f", baseline {floor:.1f} %)"
        return InstrumentFinding(
            instrument=self.name,
            verdict=verdict,
            why=f"{reason}: {found}",
            smallest_loss=None if limit is None else 100 * (1 - limit / 100 + (decides.high - decides.low) / 2),
            loss_unit="points",
            figures=[share.figure(self.name, "equal_answers", total, floor=floor, allowed=limit)],
            warning=_warning(equal, other, total) if comparison.expect_same else None,
        )


def _equal(comparison: Comparison, answers: Mapping[str, Answer]) -> set[str]:
    baseline = comparison.baseline
    return {key for key in comparison.questions if key in answers and answers[key].text == baseline[key].text}


def _judge(share: PairedShare, limit: float) -> tuple[str, str]:
    if 100 * share.high < limit:
        return CHANGES, f"fewer than {limit:g} % of the answers are equal, beyond noise"
    if 100 * share.low >= limit:
        return SAME, f"at least {limit:g} % of the answers are equal"
    return CANNOT_TELL, f"the interval includes the limit of {limit:g} %"


def difference_share(one: str, other: str) -> float:
    """Edit distance as a share of the longer text: 0 for equal texts, 1 for nothing in common."""
    return edit_distance(one, other) / max(len(one), len(other), 1)


def _warning(equal: set[str], other: set[str] | None, total: int) -> str | None:
    """A difference beyond the floor, paired question by question."""
    if other is None or len(equal) == total:
        return None
    lost, gained = len(other - equal), len(equal - other)
    low = paired_difference(lost, gained, total).low
    if low <= 0 or mcnemar_p(lost, gained) > 0.05:
        return None
    return (
        f"greedy answers should not change, but {total - len(equal):,} of {total:,} differ from the baseline's, and "
        f"{total - len(other):,} between two starts of the baseline"
    )


INSTRUMENTS.register("agreement", Agreement())
