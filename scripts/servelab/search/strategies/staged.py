"""Staged: one stage after the other, each starting from the previous winner, with a joint re-check at the end.

Each stage is decided with later options still at the baseline, so an early choice may stop helping once later ones
change. The re-check compares the winner with itself with each stage's choice reverted.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from servelab.core.run_spec import Strict
from servelab.metrics.capacity import probe
from servelab.metrics.objective import per_basis
from servelab.search.decide import decide_stage, gain_percent, unfit
from servelab.search.decision import Decision, Outline, PastStage
from servelab.search.planning import ProbeOf, make_plan, obstacle_to, plan_stage
from servelab.search.strategies import STRATEGIES
from servelab.study.configuration import Configuration, Incumbent, Variant, apply, baseline, difference, key_of
from servelab.study.plan import Plan
from servelab.study.project import Project
from servelab.study.study import RECHECK, Overrides, Study

_RAISED = {"request_rate": "capacity_per_s", "max_concurrency": "capacity_in_flight"}
"""The figure that a search raises → the objective by which a candidate that sustains less is worse."""


def probes(study: Study, past: Sequence[PastStage]) -> ProbeOf | None:
    """The first load of each configuration of the next stage; None if the whole search is done for all of them.

    A configuration that an earlier stage planned keeps what it had there: its runs are kept. The baseline was never a
    candidate, and the first stage knows no capacity: their searches are whole.
    """
    spec = study.capacity_of(study.objective.on)
    metric, basis = study.objective.metric_and_basis
    if spec is None or not past or metric != _RAISED[spec.of]:
        return None
    known = {
        key_of(candidate.configuration): candidate.runs[0].spec.incumbent_capacity
        for stage in reversed(past)
        for candidate in stage.plan.candidates
        if candidate.runs
    }
    borne, incumbent = _borne(study, past[-1]), past[-1].winner.configuration

    def probe_of(configuration: Configuration) -> float | None:
        if (key := key_of(configuration)) in known:
            return known[key]
        if borne is None:
            return None
        own, other = (
            per_basis(basis, each.accelerators, study.hardware.per_node)[0] for each in (configuration, incumbent)
        )
        return probe(spec, borne * other / own)

    return probe_of


def _borne(study: Study, stage: PastStage) -> float | None:
    """The load that the winner of a stage sustains on each of its starts; None if it is not known."""
    if stage.table is None:
        return None
    rows = stage.table[stage.table["candidate"] == stage.winner.candidate].to_dict("records")
    if not rows or unfit(study, rows[0]) is not None or not rows[0]["capacity_load"] > 0:  # type: ignore[arg-type]
        return None
    return float(rows[0]["capacity_load"])


_RECHECK_TITLE = "Joint re-check: each stage's choice reverted"


class StageChoice(Strict):
    """The choice of a stage that changed the incumbent."""

    stage: str
    candidate: str
    overrides: Overrides


class Staged:
    """The stages of the study, and `recheck` if there are several."""

    name = "staged"
    plans_all_at_once = False

    def outlines(self, study: Study) -> list[Outline]:
        """See `Strategy.outlines`."""
        stages = [
            Outline(stage.name, stage.title or stage.name, [candidate.name for candidate in stage.candidates])
            for stage in study.combined
        ]
        has_recheck = study.search.recheck and len(stages) > 1
        return [*stages, Outline(RECHECK, _RECHECK_TITLE, [])] if has_recheck else stages

    def summary(self, study: Study) -> str | None:
        """See `Strategy.summary`."""
        return None

    def plan(self, project: Project, stage: str, past: Sequence[PastStage]) -> Plan:
        """See `Strategy.plan`."""
        incumbent = past[-1].winner if past else baseline(project.study)
        if stage == RECHECK:
            return self._recheck(project, incumbent, past)
        return plan_stage(project, stage, incumbent, probes(project.study, past))

    def _recheck(self, project: Project, winner: Incumbent, past: Sequence[PastStage]) -> Plan:
        choices = choices_of(past)
        obstacle = "applies if at least two stages changed something" if len(choices) < 2 else None
        variants = []
        for choice in choices:
            configuration = _applied(project, [other for other in choices if other is not choice])
            changes = difference(winner.configuration, configuration)
            variants.append(Variant(f"without {choice.stage}: {choice.candidate}", configuration, changes))
        return make_plan(
            project, RECHECK, _RECHECK_TITLE, winner, variants, obstacle, probe_of=probes(project.study, past)
        )

    def decide(self, study: Study, plan: Plan, table: pd.DataFrame) -> Decision:
        """Decides as `decide_stage` does; but in the re-check a choice that does not help is dropped."""
        decision = decide_stage(study, plan, table)
        if plan.stage != RECHECK or not plan.applies:
            return decision
        if decision.changed:
            return decision.model_copy(update={"reason": f"{decision.reason}; the choice is dropped"})
        return _drop_what_no_longer_helps(study, decision)


STRATEGIES.register(Staged.name, Staged())


def choices_of(past: Sequence[PastStage]) -> list[StageChoice]:
    """Choices of the stages that changed the incumbent, in order."""
    return [
        StageChoice(
            stage=stage.plan.stage,
            candidate=candidate.candidate,
            overrides=Overrides.model_validate(candidate.changes),
        )
        for stage in past
        if stage.decision.changed
        for candidate in stage.plan.candidates
        if candidate.candidate == stage.decision.winner.candidate
    ]


def _applied(project: Project, choices: Sequence[StageChoice]) -> Configuration:
    """The baseline with these choices applied in order; a choice whose stage no longer applies is left out."""
    configuration = baseline(project.study).configuration
    stages = {stage.name: stage for stage in project.study.stages}
    for choice in choices:
        if obstacle_to(project.study, stages[choice.stage], configuration) is None:
            configuration = apply(configuration, choice.overrides)
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
