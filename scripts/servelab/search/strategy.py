"""The interface of a search strategy: which candidates a stage has, and which of them it keeps.

A strategy is pure: the study gives its stages, the stages before a stage give its plan, and the stage's tables give its
decision. It measures, reads and writes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import pandas as pd

from servelab.search.decision import Decision
from servelab.study.configuration import Incumbent
from servelab.study.plan import Plan, winner_of
from servelab.study.project import Project
from servelab.study.study import Study


@dataclass(frozen=True)
class Outline:
    """What is known about a stage before anything is measured."""

    name: str
    title: str
    candidates: list[str]
    """Names of its candidates; empty if they depend on winners."""
    new_runs: list[frozenset[str] | None]
    """One entry for each run that the stage may add: its possible engines, None for the incumbent's engine."""
    most_runs: int
    """Largest number of runs of the stage, including runs measured before."""


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
    plans_all_at_once: bool
    """Whether its first stage has every configuration that it can try."""

    def outlines(self, study: Study) -> list[Outline]:
        """Its stages in order, without those of the proof; `ConfigError` if there are too many combinations."""

    def summary(self, study: Study) -> str | None:
        """How it spreads its runs, in one line; None if the study's stages show it."""

    def plan(self, project: Project, stage: str, past: Sequence[PastStage]) -> Plan:
        """The plan of a stage; `past` are all earlier stages in order. Its first candidate is the incumbent."""

    def decide(
        self,
        study: Study,
        plan: Plan,
        table: pd.DataFrame,
    ) -> Decision:
        """The decision of a stage; the arguments are those of `decide.decide_stage`."""
