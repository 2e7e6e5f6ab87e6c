"""Result of a stage as data, verdicts and the decision; and the interface of a search strategy.

A strategy is pure: the study gives its stages, the stages before a stage give its plan, and the stage's tables give its
decision. It measures, reads and writes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pandas as pd
from pydantic import Field

from servelab.answers.comparison import CHANGES
from servelab.core.files import FiniteOrNull, JsonFile, JsonPart
from servelab.study.configuration import Incumbent
from servelab.study.plan import Plan, winner_of
from servelab.study.project import Project, SearchedStudy
from servelab.study.study import Study


class Verdict(JsonPart):
    """Verdict on one candidate; the change is against the incumbent, on the study's basis."""

    candidate: str = Field(description="Name of the candidate.")
    run_id: str | None = Field(None, description="Its run; null if it has none.")
    outcome: str = Field("ok", description="`ok`, `failed` or `not run`.")
    verdict: str = Field(description="`incumbent`, `winner`, `within noise`, `worse`, `cannot tell`, … (search.md).")
    change_percent: float | None = Field(None, description="Change of the objective; null if there is none.")
    change_ci95_low_percent: FiniteOrNull = Field(None, description="Lower end of its 95 % interval, if it has one.")
    change_ci95_high_percent: FiniteOrNull = Field(None, description="Upper end of it.")
    unequal_places: str | None = Field(
        None, description="How its place differs from the incumbent's, such as in the driver; null if it does not."
    )
    why: str = Field(description="Reason for the verdict.")


class Choice(JsonPart):
    """A candidate by name and run."""

    candidate: str = Field(description="Name of the candidate.")
    run_id: str | None = Field(None, description="Its run; null if it has none.")


class Decision(JsonFile):
    """`decision.json`: the outcome of a stage."""

    study: str = Field(description="Study.")
    stage: str = Field(description="Stage.")
    title: str = Field(description="Its heading.")
    applies: bool = Field(description="Whether it applied to the incumbent.")
    reason: str = Field(description="Why it ended so.")
    incumbent: Choice = Field(description="Where the stage started.")
    winner: Choice = Field(description="Where it ended.")
    changed: bool = Field(description="Whether these two differ.")
    unequal_places: str | None = Field(
        None, description="A warning: how the places of the runs compared differ; null if they do not (cluster.md)."
    )
    objective: str = Field(description="Metric the study improves.")
    margin_percent: float = Field(description="Smaller gains do not change the incumbent.")
    candidates: list[Verdict] = Field(description="Verdict on each candidate; changes are against the incumbent.")
    predicted: list[str] = Field([], description="What a prior left out, each with its prediction; nothing measured.")

    def won_by(self, winner: int, verdicts: list[Verdict], reason: str) -> Decision:
        """The decision with these verdicts and this winner, which is the incumbent at position 0."""
        chosen = verdicts[winner]
        if winner:
            verdicts = [*verdicts[:winner], chosen.model_copy(update={"verdict": "winner"}), *verdicts[winner + 1 :]]
        choice = Choice(candidate=chosen.candidate, run_id=chosen.run_id)
        update = {"winner": choice, "changed": winner != 0, "candidates": verdicts, "reason": reason}
        return self.model_copy(update=update)


Row = dict[str, Any]
"""A row of schemas.STAGE_TABLE."""


def rows_of(table: pd.DataFrame) -> list[Row]:
    """The rows of a stage's table, by their position. (`to_dict` takes ten times as long.)"""
    columns = [table[name].tolist() for name in table.columns]
    rows = [dict(zip(table.columns, values, strict=True)) for values in zip(*columns, strict=True)]
    return sorted(rows, key=lambda row: row["position"])


CHANGES_ANSWERS = CHANGES
"""Verdict of a candidate whose answers lost more than the study allows, beyond noise: it never wins."""
CANNOT_TELL = "cannot tell"
"""Verdict of a candidate whose comparison rests on a disturbed run that does not show it to be better."""
DISTURBED_SD_PERCENT = 25.0
"""Scatter of a disturbed start: a busy machine makes figures 1.2 to 5 times too low (measured)."""


def too_many_failed(study: SearchedStudy, row: Row) -> str | None:
    """How many requests of a run succeeded, if that is fewer than the study requires; None if they are enough.

    None also for a run that failed as a whole, and where no successes were counted.
    """
    rate, required = row.get("success_rate"), study.objective.min_success_rate
    if row["outcome"] != "ok" or rate is None or math.isnan(rate) or rate >= required:
        return None
    return f"{100 * rate:.2f} % of the requests succeeded, {100 * required:g} % are required"


def disturbed(row: Row) -> str | None:
    """The disturbance of a run, by its checks (`servelab.results.checks.disturbance`); None if there was none."""
    found = row.get("disturbed")
    return found if isinstance(found, str) else None


def is_barred(study: SearchedStudy, row: Row, incumbent: Row) -> bool:
    """Whether too many requests of a run failed for it to win over an incumbent that has enough successes."""
    return too_many_failed(study, row) is not None and too_many_failed(study, incumbent) is None


def settle(
    study: SearchedStudy,
    row: Row,
    incumbent: Row,
    found: tuple[str, str],
    gain_percent: float,
    *,
    despite_disturbance: bool = False,
) -> tuple[str, str]:
    """Verdict and reason of a candidate, from those that its figures give and its gain over the incumbent.

    The gain is negative for a candidate that is slower. `despite_disturbance`: the figures show what is better, though
    a run was disturbed.
    """
    verdict, why = found
    for who, side in (("the incumbent", incumbent), ("this candidate", row)):
        if what := disturbed(side):
            if verdict == "better" and despite_disturbance:
                return verdict, f"{why}; {who} was disturbed, {what}"
            return CANNOT_TELL, f"{who} was disturbed, {what}; measured: {why}"
    failed, failed_of_incumbent = too_many_failed(study, row), too_many_failed(study, incumbent)
    if failed and not failed_of_incumbent:
        return "failed", f"{failed}; measured: {why}"
    if failed_of_incumbent:
        why += f"; the incumbent: {failed_of_incumbent}"
        if failed:
            why += f"; this candidate: {failed}"
        elif verdict not in ("worse", "better") and gain_percent >= -study.objective.margin_percent:
            return "better", f"{why}; this candidate is not slower"
    return verdict, why


def soundest(study: SearchedStudy, rows: Sequence[Row], positions: Sequence[int]) -> list[int]:
    """Those of the positions that may win over the others.

    That is those of whose requests enough succeeded, if there are any; of these those that were not disturbed.
    """
    chosen = list(positions)
    for fault in (lambda row: too_many_failed(study, row), disturbed):
        chosen = [position for position in chosen if fault(rows[position]) is None] or chosen
    return chosen


def half_width_text(low: float | None, high: float | None) -> str:
    """The smallest change that an interval of a change could have shown: half of its width."""
    if low is None or high is None:
        return ""
    half = (high - low) / 2
    return f"; less than {half:.1f} % could not have been seen" if math.isfinite(half) else "; no change could be seen"


@dataclass(frozen=True)
class Outline:
    """The known facts of a stage before anything is measured."""

    name: str
    title: str
    candidates: list[str]
    """Names of its candidates; empty if they depend on winners."""


@dataclass(frozen=True)
class PastStage:
    """A finished stage."""

    plan: Plan
    decision: Decision
    table: pd.DataFrame | None = None
    """Columns of schemas.STAGE_TABLE; None in an estimate of what is left."""

    @property
    def winner(self) -> Incumbent:
        """The next stage's incumbent."""
        return winner_of(self.plan, self.decision.winner.candidate)


class Strategy(Protocol):
    """One way to search."""

    name: str

    def outlines(self, study: Study) -> list[Outline]:
        """Its stages in order, without those of the proof; `ConfigError` if there are too many combinations."""

    def summary(self, study: Study) -> str | None:
        """How it spreads its runs, in one line; None if the study's stages show it."""

    def plan(self, project: Project, stage: str, past: Sequence[PastStage]) -> Plan:
        """The plan of a stage; `past` are all earlier stages in order. Its first candidate is the incumbent."""

    def decide(self, study: Study, plan: Plan, table: pd.DataFrame) -> Decision:
        """The decision of a stage; the arguments are those of `decide.decide_stage`."""
