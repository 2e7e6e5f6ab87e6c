"""Grid: every combination of the stages' candidates under the whole load, decided at once."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from servelab.search.decide import decide_stage
from servelab.search.decision import Decision
from servelab.search.options_space import product
from servelab.search.planning import make_plan
from servelab.search.strategies import STRATEGIES
from servelab.search.strategies.adaptive import ADAPTIVE
from servelab.search.strategy import Outline, PastStage
from servelab.study.configuration import baseline
from servelab.study.plan import Plan
from servelab.study.project import Project
from servelab.study.study import Study

_MODELLED = 300
_NAME, _TITLE = "grid", "Every combination"


class Grid:
    """One stage: the baseline and every other combination."""

    name = "grid"
    plans_all_at_once = True

    def outlines(self, study: Study) -> list[Outline]:
        """See `Strategy.outlines`."""
        variants = product(study)
        engines = [frozenset({variant.configuration.engine}) for variant in variants]
        most = study.search.incumbent_starts + len(variants)
        return [Outline(_NAME, _TITLE, [variant.name for variant in variants], list(engines), most)]

    def summary(self, study: Study) -> str | None:
        """See `Strategy.summary`."""
        return f"search: grid, {study.search.incumbent_starts + len(product(study))} runs"

    def plan(self, project: Project, stage: str, past: Sequence[PastStage]) -> Plan:
        """See `Strategy.plan`."""
        return make_plan(project, _NAME, _TITLE, baseline(project.study), product(project.study))

    def decide(self, study: Study, plan: Plan, table: pd.DataFrame) -> Decision:
        """As the adaptive search decides; a model of very many takes too long, and they are compared one by one."""
        is_small = len(plan.candidates) <= _MODELLED
        return ADAPTIVE.decide(study, plan, table) if is_small else decide_stage(study, plan, table)


STRATEGIES.register(Grid.name, Grid())
