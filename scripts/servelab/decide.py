"""Decides a stage: the incumbent stays unless a candidate is better beyond noise and beyond the study's margin."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from servelab.deciding_pair import PairEvidence
from servelab.metrics import METRICS
from servelab.objective import per_basis
from servelab.searched import SearchedPlan, SearchedStudy
from servelab.spec import Strict
from servelab.statistics import ratio_ci95

Row = dict[str, Any]
"""A row of schemas.STAGE_TABLE."""

CONSTRAINT_MISSED = "constraint missed"
NOT_RUN = "not run"
"""Outcome and verdict of a candidate that the search left out."""
_WRONG = {"invalid": "is invalid", CONSTRAINT_MISSED: "misses a constraint", NOT_RUN: "was not run"}
"""Verdict of an incumbent that cannot be compared with → what is said of it; of others that it failed."""


class Verdict(Strict):
    """What became of one candidate."""

    candidate: str
    run_id: str | None
    outcome: str
    verdict: str
    change_percent: float | None
    change_ci95_low_percent: float | None
    change_ci95_high_percent: float | None
    why: str
    pair_id: str | None = None
    """The pair measured again that its change is from; None where that is from the stage's runs."""


class Choice(Strict):
    """A candidate by name and run."""

    candidate: str
    run_id: str | None


class Decision(Strict):
    """The outcome of a stage."""

    study: str
    stage: str
    title: str
    applies: bool
    reason: str
    incumbent: Choice
    winner: Choice
    changed: bool
    objective: str
    margin_percent: float
    candidates: list[Verdict]
    survivors: tuple[str, ...] = ()
    """Candidates that go on, the best first, where a stage only thins them out; the incumbent goes on with them."""


def decide_stage(
    study: SearchedStudy,
    plan: SearchedPlan,
    table: pd.DataFrame,
    rounds: pd.DataFrame,
    pair: PairEvidence | None = None,
) -> Decision:
    """The decision of a stage.

    `table` has the columns of schemas.STAGE_TABLE, `rounds` those of schemas.ROUNDS. A candidate takes over when every
    request it had to serve succeeded (`min_success_rate`), its change on the incumbent exceeds the margin, and the
    change's 95 % interval excludes zero (single rounds have no interval: only the margin speaks). An invalid run never
    wins, nor does one that misses a constraint. An incumbent of which such a thing is true is replaced by the best
    candidate of which it is not.

    `pair` is what the stage's leader has shown when it was measured again beside the incumbent: it then decides, and
    nobody else takes over.
    """
    rows: list[Row] = table.sort_values("position").to_dict("records")  # type: ignore[assignment]
    rounds = rounds_of_objective(study, rounds)
    incumbent = rows[0]
    verdicts = [_verdict(study, row, incumbent, rounds) for row in rows]
    if pair is not None:
        verdicts = [_measured_again(study, verdict, pair) for verdict in verdicts]
    better = [position for position, verdict in enumerate(verdicts) if verdict.verdict == "better"]
    sign = 1 if METRICS.get(study.objective.metric).higher_is_better else -1
    winner = max(better, key=lambda position: sign * float(rows[position]["objective_value"]), default=0)
    if winner:
        verdicts[winner] = verdicts[winner].model_copy(update={"verdict": "winner"})
    return _decision(study, plan, verdicts, winner, _reason(plan, verdicts, winner))


def _decision(
    study: SearchedStudy,
    plan: SearchedPlan,
    verdicts: list[Verdict],
    winner: int,
    reason: str,
    survivors: Sequence[str] = (),
) -> Decision:
    incumbent, chosen = (
        Choice(candidate=verdicts[position].candidate, run_id=verdicts[position].run_id) for position in (0, winner)
    )
    return Decision(
        study=plan.study,
        stage=plan.stage,
        title=plan.title,
        applies=plan.applies,
        reason=reason,
        incumbent=incumbent,
        winner=chosen,
        changed=winner != 0,
        objective=study.objective.metric,
        margin_percent=study.objective.margin_percent,
        candidates=verdicts,
        survivors=tuple(survivors),
    )


def undecided(study: SearchedStudy, plan: SearchedPlan, survivors: Sequence[str] = ()) -> Decision:
    """What is taken for a stage's decision where there is none yet: the incumbent stays."""
    verdicts = [
        Verdict(
            candidate=candidate.candidate,
            run_id=candidate.runs[0].run_id if candidate.runs else None,
            outcome="not run",
            verdict="not run",
            change_percent=None,
            change_ci95_low_percent=None,
            change_ci95_high_percent=None,
            why="not decided yet",
        )
        for candidate in plan.candidates
    ]
    return _decision(study, plan, verdicts, 0, "not decided yet", survivors)


def thin_out(
    study: SearchedStudy,
    plan: SearchedPlan,
    table: pd.DataFrame,
    rounds: pd.DataFrame,
    survivors: Sequence[str],
    rule: str,
) -> Decision:
    """The decision of a stage that chooses who goes on and no winner: `survivors`, the best first, by `rule`.

    Candidates that cannot win have their verdict of `decide_stage`; of the others some survive and the rest is dropped.
    """
    rows: list[Row] = table.sort_values("position").to_dict("records")  # type: ignore[assignment]
    rounds = rounds_of_objective(study, rounds)
    verdicts = []
    for row in rows:
        verdict = _verdict(study, row, rows[0], rounds)
        if row["position"] != 0 and unfit(study, row) is None:
            word = "survives" if row["candidate"] in survivors else "dropped"
            verdict = verdict.model_copy(update={"verdict": word})
        verdicts.append(verdict)
    return _decision(
        study, plan, verdicts, 0, f"{len(survivors)} of {len(rows) - 1} go on: {rule}", survivors=survivors
    )


def _verdict(study: SearchedStudy, row: Row, incumbent: Row, rounds: pd.DataFrame) -> Verdict:
    change: tuple[float | None, float | None, float | None] = (None, None, None)
    wrong, wrong_incumbent = unfit(study, row), unfit(study, incumbent)
    if row["position"] == 0:
        verdict, why = "incumbent", wrong[1] if wrong else "where the stage starts"
    elif wrong:
        verdict, why = wrong
    elif wrong_incumbent:
        verdict, why = "better", f"the incumbent {_WRONG.get(wrong_incumbent[0], 'failed')}"
    elif incumbent["objective_value"] == 0:
        verdict, why = _against_nothing(study, row, rounds)
    else:
        change = relative_change(study, row, incumbent, rounds)
        verdict, why = compare(study, *change)
        if incumbent["validity"] == "suspect":
            why += f"; suspect, as the incumbent is: {incumbent['validity_note']}"
    if row["validity"] == "suspect":
        why += f"; suspect: {row['validity_note']}"
    return Verdict(
        candidate=row["candidate"],
        run_id=_text(row["run_id"]),
        outcome=row["outcome"],
        verdict=verdict,
        change_percent=change[0],
        change_ci95_low_percent=_finite(change[1]),
        change_ci95_high_percent=_finite(change[2]),
        why=why,
    )


def _measured_again(study: SearchedStudy, verdict: Verdict, pair: PairEvidence) -> Verdict:
    """A candidate's verdict once the stage's leader has been measured again beside the incumbent."""
    if verdict.candidate != pair.candidate:
        if verdict.verdict != "better":
            return verdict
        why = f"{verdict.why}; {pair.candidate} was ahead and was measured again in its place"
        return verdict.model_copy(update={"verdict": "not repeated", "why": why})
    if pair.change is None:
        found: dict[str, object] = {"verdict": "failed", "why": f"measured again beside the incumbent: {pair.failed}"}
    else:
        change, low, high = pair.change
        word, text = compare(study, change, low, high)
        found = {
            "verdict": word,
            "why": f"measured again beside the incumbent, {pair.rounds} rounds each: {text}; before: {verdict.why}",
            "change_percent": change,
            "change_ci95_low_percent": _finite(low),
            "change_ci95_high_percent": _finite(high),
        }
    return verdict.model_copy(update={**found, "pair_id": pair.pair_id})


def unfit(study: SearchedStudy, row: Row) -> tuple[str, str] | None:
    """Verdict and reason for a run that can neither win nor be compared with; None for one that can."""
    if row["outcome"] == NOT_RUN:
        return NOT_RUN, str(row["message"])
    if row["outcome"] != "ok":
        return "refused" if row["reason"] == "refused" else "failed", f"{row['reason']}: {row['message']}"
    if row["success_rate"] < study.objective.min_success_rate:
        wanted = 100 * study.objective.min_success_rate
        return "failed", f"{100 * row['success_rate']:.2f} % of the requests succeeded, {wanted:g} % are required"
    if not math.isfinite(row["objective_value"]):
        return "failed", f"{study.objective.metric} could not be computed"
    if row["validity"] == "invalid":
        return "invalid", str(row["validity_note"])
    if not pd.isna(row.get("constraints_missed")):
        return CONSTRAINT_MISSED, str(row["constraints_missed"])
    return None


def gain_percent(study: SearchedStudy, verdict: Verdict) -> float | None:
    """By how much a candidate is better than the incumbent: negative where it is worse, None where nothing says."""
    if verdict.change_percent is None:
        return None
    return verdict.change_percent if METRICS.get(study.objective.metric).higher_is_better else -verdict.change_percent


def _against_nothing(study: SearchedStudy, row: Row, rounds: pd.DataFrame) -> tuple[str, str]:
    """Verdict and reason beside an incumbent whose objective is 0, which no percentage can be taken of."""
    metric, _ = study.objective.metric_and_basis
    values = rounds[(rounds["run_id"] == row["run_id"]) & (rounds["metric"] == metric)]["value"]
    if (values > 0).all() and METRICS.get(metric).higher_is_better:
        return "better", f"the incumbent's {metric} is 0"
    return "within noise", f"the incumbent's {metric} is 0, and this one's is so in a round too"


def relative_change(
    study: SearchedStudy, row: Row, incumbent: Row, rounds: pd.DataFrame
) -> tuple[float, float | None, float | None]:
    """Percent change of the objective against the incumbent with its 95 % interval, on the study's basis."""
    return ratio_ci95(objective_rounds(study, incumbent, rounds), objective_rounds(study, row, rounds))


def rounds_of_objective(study: SearchedStudy, rounds: pd.DataFrame) -> pd.DataFrame:
    """The rows of `rounds` that a decision reads, for each of thousands of candidates."""
    metric, _ = study.objective.metric_and_basis
    return rounds[rounds["metric"] == metric]


def objective_rounds(study: SearchedStudy, row: Row, rounds: pd.DataFrame) -> list[float]:
    """The objective in each round of a row's run, on the study's basis."""
    metric, basis = study.objective.metric_and_basis
    # plain arrays: a stage of a thousand candidates asks two thousand times
    run_id, name, number, value = (rounds[column].to_numpy() for column in ("run_id", "metric", "round", "value"))
    chosen = (run_id == row["run_id"]) & (name == metric)
    factor, _ = per_basis(basis, int(row["accelerators"]), int(row["accelerators_per_node"]))
    return [float(each) * factor for each in value[chosen][number[chosen].argsort()]]


def compare(study: SearchedStudy, change: float, low: float | None, high: float | None) -> tuple[str, str]:
    """Better, worse, within noise or within margin, and why, for a change in percent with its 95 % interval."""
    sign = 1 if METRICS.get(study.objective.metric).higher_is_better else -1
    gain = sign * change
    interval = f" (95 % interval {low:+.1f} to {high:+.1f} %)" if low is not None and high is not None else ""
    text = f"{change:+.1f} %{interval}"
    if low is not None and high is not None and low <= 0 <= high:
        return "within noise", f"{text} includes no change"
    if gain < 0:
        return "worse", text
    if gain <= study.objective.margin_percent:
        return "within margin", f"{text}, the margin is {study.objective.margin_percent:g} %"
    return "better", text


def _reason(plan: SearchedPlan, verdicts: list[Verdict], winner: int) -> str:
    if not plan.applies:
        return plan.reason
    if winner:
        return f"{verdicts[winner].candidate}: {verdicts[winner].why}"
    if len(verdicts) == 1:
        return "every candidate is the incumbent itself"
    return f"no candidate beats {verdicts[0].candidate} beyond noise and margin"


def _finite(value: float | None) -> float | None:
    """JSON has no infinity; an unbounded interval is told in `why`."""
    return value if value is not None and math.isfinite(value) else None


def _text(value: Any) -> str | None:
    return None if pd.isna(value) else str(value)
