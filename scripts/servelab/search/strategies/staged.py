"""Staged: one stage after the other, each starting from the previous winner, with a joint re-check at the end.

Each stage is decided with later options still at the baseline, so an early choice may stop helping once later ones
change. The re-check compares the winner with itself with each stage's choice reverted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from servelab.search.decide import decide_stage, gain_percent
from servelab.search.decision import Decision, Outline, PastStage
from servelab.search.planning import make_plan, obstacle_to, plan_stage
from servelab.search.strategies import STRATEGIES
from servelab.study.configuration import Configuration, Incumbent, Variant, apply, baseline, difference
from servelab.study.plan import Plan, PlannedCandidate
from servelab.study.project import Project
from servelab.study.study import RECHECK, Overrides, Study

_RECHECK_TITLE = "Joint re-check: each stage's choice reverted"


class Staged:
    """The stages of the study, and `recheck` if there are several."""

    name = "staged"

    def outlines(self, study: Study) -> list[Outline]:
        stages = [
            Outline(stage.name, stage.title or stage.name, [candidate.name for candidate in stage.candidates])
            for stage in study.combined
        ]
        has_recheck = study.search.recheck and len(stages) > 1
        return [*stages, Outline(RECHECK, _RECHECK_TITLE, [])] if has_recheck else stages

    def summary(self, study: Study) -> str | None:
        return None

    def plan(self, project: Project, stage: str, past: Sequence[PastStage]) -> Plan:
        incumbent = past[-1].winner if past else baseline(project.study)
        if stage == RECHECK:
            return self._recheck(project, incumbent, past)
        return plan_stage(project, stage, incumbent)

    def _recheck(self, project: Project, winner: Incumbent, past: Sequence[PastStage]) -> Plan:
        choices = {
            stage.plan.stage: candidate
            for stage in past
            if stage.decision.changed
            for candidate in stage.plan.candidates
            if candidate.candidate == stage.decision.winner.candidate
        }
        obstacle = "applies if at least two stages changed something" if len(choices) < 2 else None
        variants = []
        for stage, choice in choices.items():
            others = {name: other for name, other in choices.items() if name != stage}
            configuration = _applied(project, others)
            changes = difference(winner.configuration, configuration)
            variants.append(Variant(f"without {stage}: {choice.candidate}", configuration, changes))
        return make_plan(project, RECHECK, _RECHECK_TITLE, winner, variants, obstacle)

    def decide(self, study: Study, plan: Plan, table: pd.DataFrame) -> Decision:
        """Decides as `decide_stage` does; but in the re-check a choice that does not help is dropped."""
        decision = decide_stage(study, plan, table)
        if plan.stage != RECHECK or not plan.applies:
            return decision
        if decision.changed:
            return decision.model_copy(update={"reason": f"{decision.reason}; the choice is dropped"})
        return _drop_what_no_longer_helps(study, decision)


STRATEGIES.register(Staged.name, Staged())


def _applied(project: Project, choices: Mapping[str, PlannedCandidate]) -> Configuration:
    """The baseline with these choices, by stage, applied in order; one whose stage no longer applies is left out."""
    configuration = baseline(project.study).configuration
    stages = {stage.name: stage for stage in project.study.stages}
    for stage, choice in choices.items():
        if obstacle_to(project.study, stages[stage], configuration) is None:
            configuration = apply(configuration, Overrides.model_validate(choice.changes))
    return configuration


def _drop_what_no_longer_helps(study: Study, decision: Decision) -> Decision:
    """Drops the choice whose reverting gains most, among those whose reverting loses nothing, if there is one."""
    gains = {
        position: gain
        for position, verdict in enumerate(decision.candidates)
        if verdict.verdict in ("within noise", "within margin")
        and (gain := gain_percent(study, verdict)) is not None
        and gain >= 0
    }
    if not gains:
        return decision.model_copy(update={"reason": "every stage's choice still helps"})
    dropped = max(gains, key=lambda position: gains[position])
    verdicts, verdict = list(decision.candidates), decision.candidates[dropped]
    why = f"{verdict.why}: nothing is lost without it, so the choice is dropped"
    verdicts[dropped] = verdict.model_copy(update={"why": why})
    return decision.won_by(dropped, verdicts, f"{verdict.candidate}: {why}")
