"""Decides a stage: the incumbent stays unless a candidate is better beyond noise and beyond the study's margin."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pandas as pd

from servelab.metrics.statistics import Interval, ratio_interval, t_quantile
from servelab.metrics.timeline import lengths_text
from servelab.results.checks import unequal_places
from servelab.results.compare_with_baseline import counted_starts
from servelab.search.decision import (
    CANNOT_TELL,
    CHANGES_ANSWERS,
    DISTURBED_SD_PERCENT,
    Choice,
    Decision,
    Row,
    Verdict,
    disturbed,
    half_width_text,
    is_barred,
    rows_of,
    settle,
    soundest,
    too_many_failed,
)
from servelab.study.project import SearchedPlan, SearchedStudy
from servelab.study.study import Study


@dataclass(frozen=True)
class StartNoise:
    """Scatter of the values of single starts, each with all its rounds, about their configuration's typical value."""

    sd_percent: float
    """100 × the standard deviation of the natural logarithm of a start's value."""
    freedom: float
    """Degrees of freedom it was estimated with; those of a prior count."""

    def updated(self, squares: float, freedom: float) -> StartNoise:
        """The noise with further data: the sum of `squares` of log deviations, which has `freedom` degrees of freedom.

        The conjugate update of a scaled inverse chi-squared prior: Gelman et al., "Bayesian Data Analysis", 3rd ed.,
        section 2.6.
        """
        total = self.freedom + freedom
        variance = (self.freedom * (self.sd_percent / 100) ** 2 + squares) / total
        return StartNoise(100 * math.sqrt(variance), total)


PRIOR = StartNoise(sd_percent=2.5, freedom=3.0)
"""Assumed before anything was started twice; it weighs as much as three repeated starts.

Measured between starts, rounds included: 1.6 % on vLLM, 5.7 % on llama.cpp."""


def pooled_noise(configurations: Iterable[Sequence[float]]) -> StartNoise:
    """The noise between starts, from the values of each configuration's starts under one load.

    As in a one-way analysis of variance of the logarithms: Σ (log value − mean of its configuration)², with Σ (n − 1)
    degrees of freedom, added to the prior. A configuration with a single start adds nothing. Raises `ValueError` on a
    value that is not above 0.
    """
    noise = PRIOR
    for values in configurations:
        if any(not 0 < value < math.inf for value in values):
            raise ValueError(f"values of starts must be above 0: {list(values)}")
        if len(values) > 1:
            noise = noise.updated(sum_of_squares([math.log(value) for value in values]), len(values) - 1)
    return noise


def sum_of_squares(values: Sequence[float]) -> float:
    """Σ (value − mean)², of at least one value."""
    mean = statistics.fmean(values)
    return sum((value - mean) ** 2 for value in values)


CONSTRAINT_MISSED = "constraint missed"
NOT_RUN = "not run"
"""Outcome and verdict of a candidate that the search left out."""
_WRONG = {
    "invalid": "is invalid",
    CONSTRAINT_MISSED: "misses a constraint",
    CHANGES_ANSWERS: "changes answers",
    NOT_RUN: "was not run",
}
"""Verdict of an incumbent that cannot be compared with → words for the reason; for any other verdict, "failed"."""


def decide_stage(study: SearchedStudy, plan: SearchedPlan, table: pd.DataFrame) -> Decision:
    """The decision of a stage.

    `table` has the columns of schemas.STAGE_TABLE. A candidate wins if it is ahead of the incumbent by more than the
    margin and by more than one standard deviation of the noise between server starts, and no other is further ahead.
    This chooses what is worth a proof: it may be wrong, and its figures are not a claim. A run that is invalid or
    misses a constraint never wins. If the incumbent itself failed, is invalid or misses a constraint, the best
    candidate that does not replaces it.
    `servelab.search.decision` says what happens if single requests failed (`min_success_rate`), or if something
    disturbed a run: where nothing else is better, the candidate that was ahead by more than the margin in spite of it
    goes on, as the pairs of the proof can tell what single starts cannot.
    """
    rows = rows_of(table)
    noise = noise_of(study, rows)
    verdicts = [_verdict(study, row, rows[0], noise) for row in rows]
    better = [position for position, verdict in enumerate(verdicts) if verdict.verdict == "better"]
    better = better or [at for at, each in enumerate(verdicts) if _is_ahead_untold(study, each, rows[at], rows[0])]
    sign = study.objective.sign
    sound = soundest(study, rows, better)
    winner = max(sound, key=lambda position: sign * float(rows[position]["objective_value"]), default=0)
    return _kept(study, plan, verdicts).won_by(winner, verdicts, _reason(plan, verdicts, winner))


def _kept(study: SearchedStudy, plan: SearchedPlan, verdicts: list[Verdict], reason: str = "") -> Decision:
    """The decision that the incumbent stays."""
    incumbent = Choice(candidate=verdicts[0].candidate, run_id=verdicts[0].run_id)
    return Decision(
        study=plan.study,
        stage=plan.stage,
        title=plan.title,
        applies=plan.applies,
        reason=reason,
        incumbent=incumbent,
        winner=incumbent,
        changed=False,
        objective=study.objective.metric,
        margin_percent=study.objective.margin_percent,
        candidates=verdicts,
    )


def undecided(study: SearchedStudy, plan: SearchedPlan) -> Decision:
    """A stand-in for a stage's decision while there is none: the incumbent stays."""
    verdicts = [
        Verdict(
            candidate=candidate.candidate,
            run_id=candidate.runs[0].run_id if candidate.runs else None,
            outcome="not run",
            verdict="not run",
            why="not decided yet",
        )
        for candidate in plan.candidates
    ]
    return _kept(study, plan, verdicts, "not decided yet")


def _verdict(study: SearchedStudy, row: Row, incumbent: Row, noise: StartNoise | None) -> Verdict:
    change: tuple[float | None, float | None, float | None] = (None, None, None)
    wrong, wrong_incumbent = unfit(study, row), unfit(study, incumbent)
    if row["position"] == 0:
        rate = too_many_failed(study, row)
        verdict, why = "incumbent", wrong[1] if wrong else rate or "the stage starts from it"
    elif what := _lost(row) or _lost(incumbent):
        who = "this candidate" if _lost(row) else "the incumbent"
        verdict, why = CANNOT_TELL, f"{who} failed while it was disturbed, {what}"
    elif wrong and not _may_be_disturbed(wrong, row):
        verdict, why = wrong
        if verdict == CHANGES_ANSWERS and not wrong_incumbent and incumbent["objective_value"]:
            change = relative_change(row, incumbent, noise)  # what a user would gain by worse answers
    elif wrong_incumbent and not _may_be_disturbed(wrong_incumbent, incumbent):
        rate = too_many_failed(study, row)
        why = f"the incumbent {_WRONG.get(wrong_incumbent[0], 'failed')}{f'; {rate}' if rate else ''}"
        verdict = "better"
    elif incumbent["objective_value"] == 0:
        verdict, why = settle(study, row, incumbent, _against_zero(study, row), 0.0)
    else:
        noise = _noise_with_disturbance(noise, row, incumbent)
        change = relative_change(row, incumbent, noise)
        found = compare(study, *change) if noise is None else ahead(study, row, incumbent, noise)
        gain, is_fit = study.objective.sign * change.value, not (wrong or wrong_incumbent) and noise is not None
        verdict, why = settle(study, row, incumbent, found, gain, despite_disturbance=is_fit)
        if wrong or wrong_incumbent:
            why += "".join(f"; {found[1]}" for found in (wrong_incumbent, wrong) if found)
        if incumbent["validity"] == "suspect" and incumbent["validity_note"] != disturbed(incumbent):
            why += f"; the incumbent is suspect: {incumbent['validity_note']}"
    if lengths := natural_lengths(row, incumbent, "the incumbent's"):
        why += f"; {lengths}"
    if row["validity"] == "suspect" and (verdict != CANNOT_TELL or row["validity_note"] != disturbed(row)):
        why += f"; suspect: {row['validity_note']}"
    if row.get("answers") == CANNOT_TELL:
        why += f"; answers: {row['answers_note']}"
    if differs := unequal_places([incumbent, row]):
        why += f"; not measured at one place: {differs}"
    return Verdict(
        candidate=row["candidate"],
        run_id=None if pd.isna(row["run_id"]) else str(row["run_id"]),
        outcome=row["outcome"],
        verdict=verdict,
        change_percent=change[0],
        change_ci95_low_percent=change[1],
        change_ci95_high_percent=change[2],
        unequal_places=differs,
        why=why,
    )


def _noise_with_disturbance(noise: StartNoise | None, *rows: Row) -> StartNoise | None:
    """The noise of a comparison: a disturbed figure is a noisy one, and not none."""
    if noise is None or not any(map(disturbed, rows)):
        return noise
    return StartNoise(max(noise.sd_percent, DISTURBED_SD_PERCENT), noise.freedom)


def _is_ahead_untold(study: SearchedStudy, verdict: Verdict, row: Row, incumbent: Row) -> bool:
    """Whether a disturbed comparison has the candidate ahead by more than the margin, though not beyond its noise."""
    gain = gain_percent(study, verdict) if verdict.verdict == CANNOT_TELL else None
    fits = can_win(study, row, incumbent) and unfit(study, incumbent) is None
    return gain is not None and gain > study.objective.margin_percent and fits


def natural_lengths(row: Row, other: Row, whose: str) -> str | None:
    """The sentence of a comparison of two rows about the lengths of answers; None where these are set, or not known."""
    own, its = (float(each.get("natural_length_tokens") or math.nan) for each in (row, other))
    if row is other or not (math.isfinite(own) and math.isfinite(its)):
        return None
    return lengths_text(own, its, whose)


def unfit(study: SearchedStudy, row: Row) -> tuple[str, str] | None:
    """Verdict and reason of a run that cannot win or be compared with; None for one that can."""
    if row["outcome"] == NOT_RUN:
        return NOT_RUN, str(row["message"])
    if row["outcome"] != "ok":
        word = row["reason"] if row["reason"] == "refused" else row["outcome"]
        return str(word), f"{row['reason']}: {row['message']}"
    if not math.isfinite(row["objective_value"]):
        return "failed", f"{study.objective.metric} could not be computed"
    if row["validity"] == "invalid":
        return "invalid", str(row["validity_note"])
    if row.get("answers") == CHANGES_ANSWERS:
        return CHANGES_ANSWERS, str(row["answers_note"])
    if not pd.isna(row.get("constraints_missed")):
        return CONSTRAINT_MISSED, str(row["constraints_missed"])
    return None


def can_win(study: SearchedStudy, row: Row, incumbent: Row) -> bool:
    """Whether nothing but its speed decides if a candidate wins over the incumbent."""
    return unfit(study, row) is None and not is_barred(study, row, incumbent)


def _lost(row: Row) -> str | None:
    """The disturbance of a run that failed, perhaps only because of it; None if it did not fail or there was none."""
    what = disturbed(row) if row["outcome"] == "failed" else None
    return what and f"{what} ({row['reason']}: {row['message']})"


def _may_be_disturbed(wrong: tuple[str, str], row: Row) -> bool:
    """Whether a run misses a constraint, perhaps only because something disturbed it."""
    return wrong[0] == CONSTRAINT_MISSED and disturbed(row) is not None


def gain_percent(study: SearchedStudy, verdict: Verdict) -> float | None:
    """Gain of a candidate over the incumbent in percent: negative if it is worse, None if there is no change."""
    if verdict.change_percent is None:
        return None
    return study.objective.sign * verdict.change_percent


def _against_zero(study: SearchedStudy, row: Row) -> tuple[str, str]:
    """Verdict and reason if the incumbent's objective is 0, so that there is no change in percent."""
    metric, _ = study.objective.metric_and_basis
    if min(start_values(row)) > 0 and study.objective.sign > 0:
        return "better", f"the incumbent's {metric} is 0"
    return "within noise", f"the incumbent's {metric} is 0, and so is this candidate's on at least one server start"


def start_values(row: Row) -> list[float]:
    """The objective on each server start that counts (each log, in a recorded study), on the study's basis."""
    return [float(row["start_values"][number]) for number in counted_starts(row)]


def noise_of(study: SearchedStudy, rows: Sequence[Row]) -> StartNoise | None:
    """The noise between server starts, pooled over the rows; None for a recorded study, whose logs name no starts."""
    if not isinstance(study, Study):
        return None
    fit = [start_values(row) for row in rows if unfit(study, row) is None]
    return pooled_noise(values for values in fit if min(values) > 0)


def relative_change(row: Row, incumbent: Row, noise: StartNoise | None) -> Interval:
    """Percent change of the objective against the incumbent, with its 95 % interval.

    With `noise`, the ratio of the geometric means over server starts, by the pooled noise; else see `ratio_interval`.
    """
    values, base = start_values(row), start_values(incumbent)
    if noise is None:
        return ratio_interval(base, values)
    if min(values) <= 0:
        return Interval(100 * (statistics.fmean(values) / statistics.fmean(base) - 1), None, None)
    return change_by_noise(values, base, noise)


def change_by_noise(
    values: Sequence[float], base: Sequence[float], noise: StartNoise, alpha: float = 0.025
) -> Interval:
    """Percent change of the geometric mean, with the limits that are each missed in a share `alpha`."""
    log = statistics.fmean(map(math.log, values)) - statistics.fmean(map(math.log, base))
    half = t_quantile(1 - alpha, noise.freedom) * _scatter(noise, values, base)
    return Interval(*(100 * math.expm1(end) for end in (log, log - half, log + half)))


def _scatter(noise: StartNoise, values: Sequence[float], others: Sequence[float]) -> float:
    """Standard deviation of the difference of two mean logarithms, over the starts of each."""
    return noise.sd_percent / 100 * math.sqrt(1 / len(values) + 1 / len(others))


def ahead(study: SearchedStudy, row: Row, incumbent: Row, noise: StartNoise) -> tuple[str, str]:
    """Verdict of the search on a candidate, and its reason; beyond noise is more than one standard deviation."""
    change, low, high = relative_change(row, incumbent, noise)
    scatter = 100 * math.expm1(_scatter(noise, start_values(row), start_values(incumbent)))
    text = f"{change:+.1f} % in the search, with starts that scatter by ±{scatter:.1f} %"
    if abs(change) <= scatter:
        return "within noise", f"{text}{half_width_text(low, high)}"
    return beyond_noise(study, change, text)


def beyond_noise(study: SearchedStudy, change: float, text: str) -> tuple[str, str]:
    """Verdict (better, worse, within margin) on a change in percent that noise does not explain, and its reason."""
    gain, margin = study.objective.sign * change, study.objective.margin_percent
    if 0 <= gain <= margin:
        return "within margin", f"{text}; the margin is {margin:g} %"
    return "better" if gain > 0 else "worse", text


def compare(study: SearchedStudy, change: float, low: float | None, high: float | None) -> tuple[str, str]:
    """Verdict (better, worse, within noise or margin) and reason for a change in percent with its 95 % interval."""
    interval = f" (95 % interval {low:+.1f} to {high:+.1f} %)" if low is not None and high is not None else ""
    text = f"{change:+.1f} %{interval}"
    if low is not None and high is not None and low <= 0 <= high:
        return "within noise", f"{text} includes no change{half_width_text(low, high)}"
    return beyond_noise(study, change, text)


def _reason(plan: SearchedPlan, verdicts: list[Verdict], winner: int) -> str:
    if not plan.applies:
        return plan.reason
    if winner:
        return f"{verdicts[winner].candidate}: {verdicts[winner].why}"
    if len(verdicts) == 1:
        return "every candidate is the incumbent itself"
    reason = f"no candidate beats {verdicts[0].candidate} beyond noise and margin"
    untold = sum(verdict.verdict == CANNOT_TELL for verdict in verdicts)
    return f"{reason}; of {untold} it cannot be told, because a run was disturbed" if untold else reason
