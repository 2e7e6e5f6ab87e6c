"""Grid: every combination of the stages' candidates with the whole load, decided at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from servelab.decide import Decision, undecided
from servelab.deciding_pair import PairEvidence
from servelab.plan import Load, Plan, baseline, make_plan
from servelab.search import STRATEGIES, Outline, PastStage
from servelab.search.among_many import decide_among_many
from servelab.search.product import product
from servelab.study import Study

if TYPE_CHECKING:
    import pandas as pd

    from servelab.project import Project

_NAME, _TITLE = "grid", "Every combination"


class Grid:
    """One stage: the baseline and every other combination."""

    name = "grid"
    honours = frozenset[str]()
    plans_all_at_once = True

    def outlines(self, study: Study) -> list[Outline]:
        """See `Strategy.outlines`."""
        variants = product(study)
        engines = [frozenset({variant.configuration.engine}) for variant in variants]
        return [Outline(_NAME, _TITLE, [variant.name for variant in variants], list(engines), 1 + len(variants))]

    def summary(self, study: Study) -> str | None:
        """See `Strategy.summary`."""
        return f"search: grid, {1 + len(product(study))} runs"

    def loads(self, study: Study) -> list[Load]:
        """See `Strategy.loads`."""
        return []

    def plan(self, project: Project, stage: str, past: Sequence[PastStage]) -> Plan:
        """See `Strategy.plan`."""
        return make_plan(project, _NAME, _TITLE, baseline(project), product(project.study))

    def decide(
        self, study: Study, plan: Plan, table: pd.DataFrame, rounds: pd.DataFrame, pair: PairEvidence | None
    ) -> Decision:
        """See `decide_among_many`."""
        return decide_among_many(study, plan, table, rounds, pair)

    def assume(self, study: Study, plan: Plan) -> Decision:
        """See `Strategy.assume`."""
        return undecided(study, plan)


STRATEGIES.register(Grid.name, Grid())
