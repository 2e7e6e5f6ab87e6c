"""Tasks: right answers to graded questions, paired question by question.

The loss is the share of questions that only the baseline has right, less the share that only the candidate has right.
"""

from __future__ import annotations

from servelab.answers.comparison import (
    CANNOT_TELL,
    CHANGES,
    SAME,
    Allowed,
    Comparison,
    Figure,
    InstrumentFinding,
    PairedShare,
    mcnemar_p,
    paired_difference,
    share_interval,
)
from servelab.answers.instruments import INSTRUMENTS

LEAST_RIGHT_PERCENT = 20.0
"""Where the baseline has fewer right there is too little to lose for `same`."""


class Tasks:
    """See the module."""

    name = "tasks"

    def judges(self, allowed: Allowed) -> bool:
        return True

    def find(self, comparison: Comparison) -> InstrumentFinding | None:
        """See `Instrument.find`. A missing answer is not right; an answer without a grade leaves the loss unknown."""
        graded = [key for key in comparison.questions if comparison.baseline[key].correct is not None]
        if not graded:
            return None
        ungraded = [key for key in graded if key in comparison.candidate and comparison.candidate[key].correct is None]
        if ungraded:
            why = f"the candidate's answer to {ungraded[0]} has no grade, and the baseline's has one"
            return InstrumentFinding(instrument=self.name, verdict=CANNOT_TELL, why=why)
        right = {key for key in graded if comparison.baseline[key].correct}
        kept = {key for key in graded if key in comparison.candidate and comparison.candidate[key].correct}
        lost, gained, total = len(right - kept), len(kept - right), len(graded)
        shown = paired_difference(lost, gained, total)
        decides = paired_difference(lost, gained, total, comparison.confidence)
        p = mcnemar_p(lost, gained)
        accuracy = share_interval(len(right), total)
        floor = _loss(comparison, graded, right)
        limit = comparison.allowed.task_loss_points
        smallest = limit + 100 * (decides.value - decides.low)
        verdict, reason = _judge(decides, p, 1 - comparison.confidence, limit, 100 * accuracy.value)
        figures = [
            accuracy.figure(self.name, "baseline_accuracy", total),
            share_interval(len(kept), total).figure(self.name, "candidate_accuracy", total),
            shown.figure(self.name, "loss", total, unit="points", floor=floor, allowed=limit),
            Figure(instrument=self.name, name="mcnemar_p", unit="probability", value=p, questions=total),
        ]
        found = (
            f"right answers {100 * accuracy.value:.1f} % with the baseline, {100 * len(kept) / total:.1f} % with the "
            f"candidate, of {total:,} questions: {lost} lost, {gained} gained, a loss of {100 * shown.value:.1f} "
            f"points (95 % interval {100 * shown.low:.1f} to {100 * shown.high:.1f}), {limit:g} allowed"
        )
        return InstrumentFinding(
            instrument=self.name,
            verdict=verdict,
            why=f"{reason}: {found}",
            smallest_loss=smallest,
            loss_unit="points",
            figures=figures,
        )


def _judge(loss: PairedShare, p: float, error: float, limit: float, accuracy_percent: float) -> tuple[str, str]:
    if 100 * loss.low > limit and p <= error:
        return CHANGES, "more is lost than is allowed, beyond noise"
    if 100 * loss.high > limit:
        return CANNOT_TELL, "the interval reaches beyond the allowed loss"
    if accuracy_percent < LEAST_RIGHT_PERCENT:
        least = f"the baseline has fewer than {LEAST_RIGHT_PERCENT:g} % right"
        return CANNOT_TELL, f"{least}, so that there is too little to lose; ask easier questions"
    return SAME, "the loss is within what is allowed"


def _loss(comparison: Comparison, graded: list[str], right: set[str]) -> float | None:
    """The loss of the baseline's other start, in points."""
    other = comparison.floor
    if other is None:
        return None
    kept = sum(key in other and bool(other[key].correct) for key in graded)
    return 100 * (len(right) - kept) / len(graded)


INSTRUMENTS.register("tasks", Tasks())


class Missing:
    """See the module."""

    name = "missing"

    def judges(self, allowed: Allowed) -> bool:
        """See `Instrument.judges`: a missing answer is a wrong one to `tasks` too, so that chance counts once."""
        return False

    def find(self, comparison: Comparison) -> InstrumentFinding | None:
        total = len(comparison.questions)
        missing = [key for key in comparison.questions if key not in comparison.candidate]
        share = paired_difference(len(missing), 0, total)
        decides = paired_difference(len(missing), 0, total, comparison.confidence)
        limit = comparison.allowed.task_loss_points
        other = comparison.floor
        floor = None if other is None else 100 * sum(key not in other for key in comparison.questions) / total
        beyond = 100 * decides.low > limit and mcnemar_p(len(missing), 0) <= 1 - comparison.confidence
        why = f"{len(missing):,} of {total:,} answers are missing ({100 * share.value:.1f} %, {limit:g} % allowed)"
        figure = share._replace(low=max(0.0, share.low)).figure(self.name, "missing", total, floor=floor, allowed=limit)
        return InstrumentFinding(instrument=self.name, verdict=CHANGES if beyond else None, why=why, figures=[figure])


INSTRUMENTS.register("missing", Missing())
