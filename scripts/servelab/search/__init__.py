"""Search strategies: which candidates a stage has, and what is kept of them; each is one file that registers itself.

A strategy is pure: its stages are known from the study alone, the plan of a stage follows from the stages before it,
and a decision from the stage's tables. It measures, reads and writes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from servelab.decide import Decision, decide_stage
from servelab.deciding_pair import PairEvidence
from servelab.plan import Incumbent, Load, Plan, baseline, plan_comparison, winner_of
from servelab.registry import Registry
from servelab.search.stopping import stop
from servelab.searched import SearchedPlan, SearchedStudy
from servelab.study import COMPARISON, Study

if TYPE_CHECKING:
    import pandas as pd

    from servelab.project import Project


@dataclass(frozen=True)
class Outline:
    """What is known of a stage before anything was measured."""

    name: str
    title: str
    candidates: list[str]
    """Names of its candidates, as far as no winner decides on them."""
    new_runs: list[frozenset[str] | None]
    """An entry for each run that the stage can add at most: the engines it may have, None for the incumbent's."""
    most_runs: int
    """Runs that the stage can have at most, those measured before among them."""


@dataclass(frozen=True)
class PastStage:
    """A stage that is over."""

    plan: Plan
    decision: Decision
    table: pd.DataFrame | None = None
    """Columns of schemas.STAGE_TABLE; needed where the study has a `stop_when`, and only there."""

    @property
    def winner(self) -> Incumbent:
        """What the next stage starts from."""
        return winner_of(self.plan, self.decision.winner.candidate)


class Strategy(Protocol):
    """One way to search."""

    name: str
    honours: frozenset[str]
    """Keys of `search.stop_when` that can end it."""
    plans_all_at_once: bool
    """Whether its first stage has every configuration that it will ever try."""

    def outlines(self, study: Study) -> list[Outline]:
        """Its stages in order, without the reserved `comparison`; `ConfigError` where the study asks for too much."""

    def summary(self, study: Study) -> str | None:
        """How it spreads its runs, in one line; None where the study's stages say it."""

    def loads(self, study: Study) -> list[Load]:
        """Loads that its stages put on candidates beside whole workloads."""

    def plan(self, project: Project, stage: str, past: Sequence[PastStage]) -> Plan:
        """The plan of a stage; `past` are all stages before it, in order. Its first candidate is the incumbent."""

    def decide(
        self,
        study: Study,
        plan: Plan,
        table: pd.DataFrame,
        rounds: pd.DataFrame,
        pair: PairEvidence | None,
    ) -> Decision:
        """The decision of a stage; the arguments are those of `servelab.decide.decide_stage`."""

    def assume(self, study: Study, plan: Plan) -> Decision:
        """What is taken for the decision while there is none, for telling what is left: the incumbent stays."""


STRATEGIES: Registry[Strategy] = Registry("search strategy")


def strategy_of(study: Study) -> Strategy:
    """The strategy that a study asks for; `ConfigError` on an unknown one."""
    return STRATEGIES.get(study.search.strategy)


def stage_names(study: Study) -> list[str]:
    """The stages of a study in order, the reserved last one included."""
    return [*(outline.name for outline in strategy_of(study).outlines(study)), COMPARISON]


def plan(project: Project, stage: str, past: Sequence[PastStage]) -> Plan:
    """The plan of one of `stage_names`; `past` are all stages before it, in order."""
    if stage == COMPARISON:
        return plan_comparison(project, past[-1].winner if past else baseline(project))
    planned = strategy_of(project.study).plan(project, stage, past)
    return stop(project.study, planned, past)


def decide(
    study: SearchedStudy,
    plan: SearchedPlan,
    table: pd.DataFrame,
    rounds: pd.DataFrame,
    pair: PairEvidence | None = None,
) -> Decision:
    """The decision of a stage of either kind of study; the arguments are those of `servelab.decide.decide_stage`."""
    if isinstance(study, Study) and isinstance(plan, Plan):
        return strategy_of(study).decide(study, plan, table, rounds, pair)
    return decide_stage(study, plan, table, rounds, pair)


STRATEGIES.load(__name__)
