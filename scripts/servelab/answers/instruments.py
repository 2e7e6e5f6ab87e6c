"""Instruments: ways to compare a candidate's answers with the baseline's.

- *Tasks*: right answers to graded questions, paired question by question. The loss is the share of questions that only
  the baseline has right, less the share that only the candidate has right.
- *Missing*: answers that are not there.
- *Agreement*: greedy answers that are equal to the baseline's. Another start of the same baseline gives the floor: what
  nondeterminism alone changes.
- *Distance*: mean KL divergence of the token that follows each question, from the likeliest tokens that both servers
  print. The rest of the tokens counts as one. A token that the candidate does not print is taken to be as likely as it
  can be: no likelier than the least likely one that it prints, nor than all those together that it does not print. So
  the figure is a lower bound of the divergence over all tokens.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Protocol

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
from servelab.answers.question import Answer, usable_logprobs
from servelab.metrics.statistics import Interval, t_quantile


class Instrument(Protocol):
    """One way to compare."""

    name: str

    def judges(self, allowed: Allowed) -> bool:
        """Whether it may say `changes answers` of a candidate by chance, so that it shares the error of 5 %."""

    def find(self, comparison: Comparison) -> InstrumentFinding | None:
        """Its findings; None if the answers have nothing for it."""


LEAST_RIGHT_PERCENT = 20.0
"""Where the baseline has fewer right there is too little to lose for `same`."""


class Tasks:
    """Right answers to graded questions."""

    name = "tasks"

    def judges(self, allowed: Allowed) -> bool:
        """See `Instrument.judges`."""
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
        floor = _floor_loss(comparison, graded, right)
        limit = comparison.allowed.task_loss_points
        smallest = limit + 100 * (decides.value - decides.low)
        verdict, reason = _judge_loss(decides, p, 1 - comparison.confidence, limit, 100 * accuracy.value)
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


def _judge_loss(loss: PairedShare, p: float, error: float, limit: float, accuracy_percent: float) -> tuple[str, str]:
    if 100 * loss.low > limit and p <= error:
        return CHANGES, "more is lost than is allowed, beyond noise"
    if 100 * loss.high > limit:
        return CANNOT_TELL, "the interval reaches beyond the allowed loss"
    if accuracy_percent < LEAST_RIGHT_PERCENT:
        least = f"the baseline has fewer than {LEAST_RIGHT_PERCENT:g} % right"
        return CANNOT_TELL, f"{least}, so that there is too little to lose; ask easier questions"
    return SAME, "the loss is within what is allowed"


def _floor_loss(comparison: Comparison, graded: list[str], right: set[str]) -> float | None:
    """The loss of the baseline's other start, in points."""
    other = comparison.floor
    if other is None:
        return None
    kept = sum(key in other and bool(other[key].correct) for key in graded)
    return 100 * (len(right) - kept) / len(graded)


class Missing:
    """Answers that are not there."""

    name = "missing"

    def judges(self, allowed: Allowed) -> bool:
        """See `Instrument.judges`: a missing answer is a wrong one to `tasks` too, so that chance counts once."""
        return False

    def find(self, comparison: Comparison) -> InstrumentFinding | None:
        """See `Instrument.find`."""
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


class Agreement:
    """Equal answers."""

    name = "agreement"

    def judges(self, allowed: Allowed) -> bool:
        """See `Instrument.judges`."""
        return False

    def find(self, comparison: Comparison) -> InstrumentFinding | None:
        """See `Instrument.find`. A missing answer is not equal to any."""
        total = len(comparison.questions)
        equal = _equal(comparison, comparison.candidate)
        other = None if comparison.floor is None else _equal(comparison, comparison.floor)
        share = share_interval(len(equal), total)
        floor = None if other is None else 100 * len(other) / total
        found = f"{len(equal):,} of {total:,} answers are equal ({100 * share.value:.1f} %"
        found += ", a second start of the baseline was not measured)" if floor is None else f", baseline {floor:.1f} %)"
        return InstrumentFinding(
            instrument=self.name,
            verdict=None,
            why=f"reported: {found}",
            figures=[share.figure(self.name, "equal_answers", total, floor=floor)],
            warning=_warning(equal, other, total) if comparison.expect_same else None,
        )


def _equal(comparison: Comparison, answers: Mapping[str, Answer]) -> set[str]:
    baseline = comparison.baseline
    return {key for key in comparison.questions if key in answers and answers[key].text == baseline[key].text}


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


def skewed_mean(values: Sequence[float], confidence: float) -> Interval:
    """Mean with Hall's interval, which corrects Student's for the skewness of the values; no ends below three values.

    Hall 1992, J. R. Stat. Soc. B 54, 221 (the cubic transformation), with Student's quantiles. Student's interval ends
    too low for distances: it takes a mean at the limit for one below it too often. Raises `ValueError` on no values.
    """
    count, mean = len(values), statistics.fmean(values)
    if count < 3:
        return Interval(mean, None, None)
    deviation = statistics.stdev(values, mean)
    if deviation == 0:
        return Interval(mean, mean, mean)
    skewness = math.fsum(((value - mean) / deviation) ** 3 for value in values) / count
    quantile = t_quantile((1 + confidence) / 2, count - 1) / math.sqrt(count)
    low, high = (mean - deviation * _corrected(at, skewness, count) for at in (quantile, -quantile))
    return Interval(mean, low, high)


def _corrected(distance: float, skewness: float, count: int) -> float:
    """Distance of the mean from the truth, in standard deviations, at which Hall's statistic is `distance`."""
    if abs(skewness) < 1e-6:  # the limit for no skewness, where the formula divides by it
        return distance
    return 3 / skewness * (math.cbrt(1 + skewness * (distance - skewness / (6 * count))) - 1)


LEAST_SHARE = 0.95
"""Of the baseline's log-probabilities that the candidate must have too, to be called the same."""
LEAST_QUESTIONS = 100
"""To be called the same: the interval of fewer skewed values ends too low."""
_SMALLEST = 1e-6
"""Probability below which servers' digits mean nothing."""


class Distance:
    """Divergence of the first token."""

    name = "distance"

    def judges(self, allowed: Allowed) -> bool:
        """See `Instrument.judges`."""
        return allowed.most_kl_nats is not None

    def find(self, comparison: Comparison) -> InstrumentFinding | None:
        """See `Instrument.find`. Answers without usable log-probabilities are left out."""
        baseline, limit = comparison.baseline, comparison.allowed.most_kl_nats
        able = [key for key in comparison.questions if usable_logprobs(baseline[key]) is not None]
        if not able and limit is None:
            return None
        values = _divergences(comparison, able, comparison.candidate)
        floor = None if comparison.floor is None else _divergences(comparison, able, comparison.floor)
        verdict, reason, smallest = None, "reported", None
        if limit is not None:
            interval = _interval(values, comparison.confidence)
            verdict, reason = _judge_distance(interval, limit, len(values), len(able))
            if interval is not None and interval.low is not None:
                smallest = limit + interval.value - interval.low
        mean = _interval(values, 0.95)
        ends = {} if mean is None else {"low": mean.low, "high": mean.high}
        figure = Figure(
            instrument=self.name,
            name="first_token_kl",
            unit="nats",
            value=None if mean is None else mean.value,
            floor=statistics.fmean(floor) if floor else None,
            allowed=limit,
            questions=len(values),
            **ends,
        )
        value = "no figure" if mean is None else f"{mean.value:.3g} nats"
        return InstrumentFinding(
            instrument=self.name,
            verdict=verdict,
            why=f"{reason}: first token kl {value} over {len(values):,} questions",
            smallest_loss=smallest,
            loss_unit="nats",
            figures=[figure],
        )


def _judge_distance(interval: Interval | None, limit: float, measured: int, able: int) -> tuple[str, str]:
    if interval is not None and interval.low is not None and interval.low > limit:
        return CHANGES, f"more than {limit:g}, beyond noise"
    if measured < LEAST_SHARE * able or interval is None or interval.high is None:
        return CANNOT_TELL, f"the candidate has log-probabilities for {measured:,} of {able:,} questions only"
    if measured < LEAST_QUESTIONS:
        return CANNOT_TELL, f"fewer than {LEAST_QUESTIONS} questions have log-probabilities"
    if interval.high > limit:
        return CANNOT_TELL, f"the interval reaches beyond {limit:g}"
    return SAME, f"at most {limit:g}"


def _divergences(comparison: Comparison, able: Sequence[str], answers: Mapping[str, Answer]) -> list[float]:
    found = [_kl(comparison.baseline[key], answers[key]) for key in able if key in answers]
    return [value for value in found if value is not None]


def _interval(values: Sequence[float], confidence: float) -> Interval | None:
    """Mean with its interval; None without any value."""
    return skewed_mean(values, confidence) if values else None


def _kl(baseline: Answer, candidate: Answer) -> float | None:
    """Lower bound of the divergence of the candidate's first token from the baseline's, in nats."""
    here, there = usable_logprobs(baseline), usable_logprobs(candidate)
    if here is None or there is None:
        return None
    printed = [math.exp(logprob) for logprob in there.values()]
    most_unprinted = min(*printed, 1 - math.fsum(printed))
    total = 0.0
    for token, logprob in here.items():
        share = math.exp(logprob)
        if share > 0:
            likely = math.exp(there[token]) if token in there else most_unprinted
            total += share * (logprob - math.log(max(_SMALLEST, likely)))
    rest = 1 - math.fsum(math.exp(value) for value in here.values())
    other_rest = 1 - math.fsum(math.exp(value) for token, value in there.items() if token in here)
    if rest > _SMALLEST:
        total += rest * math.log(rest / max(_SMALLEST, other_rest))
    return max(0.0, total)


INSTRUMENTS: tuple[Instrument, ...] = (Agreement(), Distance(), Missing(), Tasks())
