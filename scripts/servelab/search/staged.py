"""Staged: greedy over the stages as the study names them, each on the last winner, and at last a joint re-check.

A stage is decided while the later ones stand at the baseline, and what helped then may not help beside what they chose.
The re-check measures the winner against itself with each stage's choice turned back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from servelab.decide import Decision, decide_stage, gain_percent, undecided
from servelab.deciding_pair import PairEvidence
from servelab.plan import (
    Configuration,
    Incumbent,
    Load,
    Plan,
    Variant,
    apply,
    baseline,
    difference,
    make_plan,
    obstacle_to,
    plan_stage,
)
from servelab.search import STRATEGIES, Outline, PastStage
from servelab.spec import Strict
from servelab.study import RECHECK, Overrides, Study

if TYPE_CHECKING:
    import pandas as pd

    from servelab.project import Project

_RECHECK_TITLE = "Joint re-check: each stage's choice turned back"


class Choice(Strict):
    """What a stage that changed something chose."""

    stage: str
    candidate: str
    overrides: Overrides


class Staged:
    """The stages of the study, and `recheck` where there are several."""

    name = "staged"
    honours = frozenset({"accelerator_hours", "objective_reached", "slo_reached"})
    plans_all_at_once = False

    def outlines(self, study: Study) -> list[Outline]:
        """See `Strategy.outlines`."""
        stages = [
            Outline(
                name=stage.name,
                title=stage.title or stage.name,
                candidates=[candidate.name for candidate in stage.candidates],
                new_runs=[frozenset({each.engine}) if each.engine else None for each in stage.candidates],
                most_runs=1 + len(stage.candidates),
            )
            for stage in study.stages
        ]
        if not study.search.recheck or len(stages) < 2:
            return stages
        # the last choice turned back is what its stage started from, and so was measured
        new = [frozenset(study.engines)] * (len(stages) - 1)
        return [*stages, Outline(RECHECK, _RECHECK_TITLE, [], list(new), 1 + len(stages))]

    def summary(self, study: Study) -> str | None:
        """See `Strategy.summary`."""
        return None

    def loads(self, study: Study) -> list[Load]:
        """See `Strategy.loads`."""
        return []

    def plan(self, project: Project, stage: str, past: Sequence[PastStage]) -> Plan:
        """See `Strategy.plan`."""
        incumbent = past[-1].winner if past else baseline(project)
        return self._recheck(project, incumbent, past) if stage == RECHECK else plan_stage(project, stage, incumbent)

    def _recheck(self, project: Project, winner: Incumbent, past: Sequence[PastStage]) -> Plan:
        choices = choices_of(past)
        obstacle = "applies where at least two stages changed something" if len(choices) < 2 else None
        variants = []
        for choice in choices:
            configuration = _applied(project, [other for other in choices if other is not choice])
            changes = difference(winner.configuration, configuration)
            variants.append(Variant(f"without {choice.stage}: {choice.candidate}", configuration, changes))
        return make_plan(project, RECHECK, _RECHECK_TITLE, winner, variants, obstacle)

    def decide(
        self, study: Study, plan: Plan, table: pd.DataFrame, rounds: pd.DataFrame, pair: PairEvidence | None
    ) -> Decision:
        """As any stage is decided; but in the re-check a choice must show that it helps, or it is dropped."""
        decision = decide_stage(study, plan, table, rounds, pair)
        if plan.stage != RECHECK or not plan.applies:
            return decision
        if decision.changed:
            return decision.model_copy(update={"reason": f"{decision.reason}; the choice is dropped"})
        return _drop_what_no_longer_helps(study, decision, pair)

    def assume(self, study: Study, plan: Plan) -> Decision:
        """See `Strategy.assume`."""
        return undecided(study, plan)


STRATEGIES.register(Staged.name, Staged())


def choices_of(past: Sequence[PastStage]) -> list[Choice]:
    """What the stages that changed something chose, in order."""
    return [
        Choice(
            stage=stage.plan.stage,
            candidate=candidate.candidate,
            overrides=Overrides.model_validate(candidate.changes),
        )
        for stage in past
        if stage.decision.changed
        for candidate in stage.plan.candidates
        if candidate.candidate == stage.decision.winner.candidate
    ]


def _applied(project: Project, choices: Sequence[Choice]) -> Configuration:
    """The baseline with these choices on it, but for one whose stage does not apply to what the others come to."""
    configuration = baseline(project).configuration
    stages = {stage.name: stage for stage in project.study.stages}
    for choice in choices:
        if obstacle_to(project.study, stages[choice.stage], configuration) is None:
            configuration = apply(configuration, choice.overrides)
    return configuration


def _drop_what_no_longer_helps(study: Study, decision: Decision, pair: PairEvidence | None) -> Decision:
    """Drops the choice whose turning back gains most of those that lose nothing by it, if there is one.

    What a `pair` was measured for is the only one that can be dropped by it.
    """
    gains = {
        position: gain
        for position, verdict in enumerate(decision.candidates)
        if verdict.verdict in ("within noise", "within margin")
        and (pair is None or verdict.pair_id == pair.pair_id)
        and (gain := gain_percent(study, verdict)) is not None
        and gain >= 0
    }
    if not gains:
        return decision.model_copy(update={"reason": "every stage's choice still helps"})
    dropped = max(gains, key=lambda position: gains[position])
    verdict = decision.candidates[dropped]
    verdict = verdict.model_copy(
        update={"verdict": "winner", "why": f"{verdict.why}: nothing is lost without it, so the choice is dropped"}
    )
    return decision.model_copy(
        update={
            "reason": f"{verdict.candidate}: {verdict.why}",
            "winner": decision.winner.model_copy(update={"candidate": verdict.candidate, "run_id": verdict.run_id}),
            "changed": True,
            "candidates": [*decision.candidates[:dropped], verdict, *decision.candidates[dropped + 1 :]],
        }
    )
