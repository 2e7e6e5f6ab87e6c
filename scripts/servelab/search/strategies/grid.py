"""Grid: every combination of the stages' candidates under the whole load, decided at once."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from servelab.search.decide import ahead, decide_stage, noise_of
from servelab.search.decision import Decision, Outline, PastStage, rows_of, soundest
from servelab.search.options_space import flat, product
from servelab.search.planning import make_plan
from servelab.search.strategies import STRATEGIES
from servelab.study.configuration import baseline
from servelab.study.plan import Plan
from servelab.study.project import Project
from servelab.study.study import Study


def decide_among_many(study: Study, plan: Plan, table: pd.DataFrame) -> Decision:
    """Decides as `servelab.search.decide.decide_stage` does, with one difference.

    Among the better candidates that noise cannot tell from the best, the winner is the one that changes least on the
    incumbent, so that the answer has no choice that is there by noise alone.
    """
    decision = decide_stage(study, plan, table)
    if not decision.changed:
        return decision
    rows = rows_of(table)
    noise = noise_of(study, rows)
    assert noise is not None
    verdicts = [
        verdict.model_copy(update={"verdict": "better"}) if verdict.verdict == "winner" else verdict
        for verdict in decision.candidates
    ]
    sign = study.objective.sign
    better = [position for position, verdict in enumerate(verdicts) if verdict.verdict == "better"]
    better = soundest(study, rows, better)
    best = max(better, key=lambda position: sign * float(rows[position]["objective_value"]))
    equals = [position for position in better if ahead(study, rows[position], rows[best], noise)[0] != "worse"]
    changed = [len(flat(each.changes)) for each in plan.candidates]
    winner = min(equals, key=lambda at: (changed[at], -sign * float(rows[at]["objective_value"])))
    why = verdicts[winner].why
    if winner != best:
        why += (
            f"; of {len(equals)} that cannot be distinguished from the best, {verdicts[best].candidate}, "
            "it changes least"
        )
    verdicts[winner] = verdicts[winner].model_copy(update={"why": why})
    return decision.won_by(winner, verdicts, f"{verdicts[winner].candidate}: {why}")


_NAME, _TITLE = "grid", "Every combination"


class Grid:
    """One stage: the baseline and every other combination."""

    name = "grid"

    def outlines(self, study: Study) -> list[Outline]:
        return [Outline(_NAME, _TITLE, [variant.name for variant in product(study)])]

    def summary(self, study: Study) -> str | None:
        return f"search: grid, {study.search.incumbent_starts + len(product(study))} runs"

    def plan(self, project: Project, stage: str, past: Sequence[PastStage]) -> Plan:
        return make_plan(project, _NAME, _TITLE, baseline(project.study), product(project.study))

    def decide(self, study: Study, plan: Plan, table: pd.DataFrame) -> Decision:
        return decide_among_many(study, plan, table)


STRATEGIES.register(Grid.name, Grid())
