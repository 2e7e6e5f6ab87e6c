"""Successive halving: every combination with a short load, the best with longer ones, the last with the whole load.

Jamieson and Talwalkar 2016, "Non-stochastic best arm identification and hyperparameter optimization", with one
difference: because a short load is noisy, every candidate that cannot be distinguished from the best survives too.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from servelab.metrics.definitions import METRICS
from servelab.search.among_many import decide_among_many
from servelab.search.decide import can_win, decide_survivors, noise_of, relative_change, undecided
from servelab.search.decision import Decision, disturbed, rows_of
from servelab.search.planning import make_plan
from servelab.search.product import product
from servelab.search.strategies import STRATEGIES
from servelab.search.strategy import Outline, PastStage
from servelab.study.configuration import Load, Variant, baseline
from servelab.study.plan import Plan
from servelab.study.project import Project
from servelab.study.study import Study


class Halving:
    """Stages `halving-1` to `halving-<rungs>`; the baseline is the incumbent of each and always advances."""

    name = "halving"
    stops_on = frozenset({"accelerator_hours"})
    plans_all_at_once = True

    def outlines(self, study: Study) -> list[Outline]:
        """See `Strategy.outlines`."""
        variants = product(study)
        engines = [frozenset({variant.configuration.engine}) for variant in variants]
        start = frozenset({str(study.baseline.engine)})
        rungs = range(1, study.search.rungs + 1)
        return [
            Outline(
                name=_stage(rung),
                title=_title(study, rung),
                candidates=[variant.name for variant in variants] if rung == 1 else [],
                new_runs=[*[start] * study.search.incumbent_starts, *engines],
                most_runs=study.search.incumbent_starts + len(variants),
            )
            for rung in rungs
        ]

    def summary(self, study: Study) -> str | None:
        """See `Strategy.summary`."""
        count = whole = len(product(study))
        parts = []
        for rung in range(1, study.search.rungs + 1):
            divisor = _divisor(study, rung)
            load = f"1/{divisor} of the load" if divisor > 1 else "the whole load"
            parts.append(f"{study.search.incumbent_starts + count}{' runs' if rung == 1 else ' or more'} with {load}")
            count = -(-count // study.search.eta)
        grid = study.search.incumbent_starts + whole
        return f"search: halving, {', '.join(parts)}; a grid has {grid} with the whole load"

    def loads(self, study: Study) -> list[Load]:
        """See `Strategy.loads`."""
        divisors = [_divisor(study, rung) for rung in range(1, study.search.rungs)]
        return [Load(workload=study.objective.on, divisor=divisor) for divisor in divisors]

    def plan(self, project: Project, stage: str, past: Sequence[PastStage]) -> Plan:
        """See `Strategy.plan`; survivors are in order of their last objective, the best first."""
        study, rung = project.study, len(past) + 1
        if past:
            tried = {candidate.candidate: candidate for candidate in past[-1].plan.candidates}
            surviving = [tried[name] for name in past[-1].decision.survivors]
            variants = [Variant(each.candidate, each.configuration, each.changes) for each in surviving]
        else:
            variants = product(study)
        title, divisor = _title(study, rung), _divisor(study, rung)
        return make_plan(project, _stage(rung), title, baseline(project.study), variants, divisor=divisor)

    def decide(self, study: Study, plan: Plan, table: pd.DataFrame) -> Decision:
        """Decides the last rung with `decide_among_many`; for the others, chooses the survivors."""
        if plan.stage == _stage(study.search.rungs):
            return decide_among_many(study, plan, table)
        kept, rule = survivors(study, table)
        return decide_survivors(study, plan, table, kept, rule)

    def assume(self, study: Study, plan: Plan) -> Decision:
        """Assumes that the first of every `eta` candidates survive; which ones does not matter for an estimate."""
        names = [candidate.candidate for candidate in plan.candidates if not candidate.is_incumbent and candidate.runs]
        return undecided(study, plan, names[: -(-len(names) // study.search.eta)])


def survivors(study: Study, table: pd.DataFrame) -> tuple[list[str], str]:
    """Candidates of a rung that advance, the best first, and the rule in words; without the incumbent.

    One in `eta` of the candidates that can win advances, and each whose difference from the best has a 95 % interval
    that includes 0, by the noise between server starts. A disturbed candidate advances too, because its figures say
    nothing.
    """
    metric, _ = study.objective.metric_and_basis
    sign = 1 if METRICS.get(metric).higher_is_better else -1
    rows = rows_of(table)
    fit = [row for row in rows if can_win(study, row, rows[0])]
    noise = noise_of(study, fit)
    candidates = [row for row in fit if not row["is_incumbent"]]
    candidates.sort(key=lambda row: -sign * row["objective_value"])
    if not candidates:
        return [], "none could win"
    count = -(-len(candidates) // study.search.eta)
    kept = []
    for position, row in enumerate(candidates):
        _, low, high = relative_change(row, candidates[0], noise)
        if position < count or disturbed(row) or (low is not None and high is not None and low <= 0 <= high):
            kept.append(str(row["candidate"]))
    rule = f"the best {count} of {len(candidates)}"
    if len(kept) > count:
        rule += f", and {len(kept) - count} that cannot be distinguished from the best or were disturbed"
    return kept, rule


def _stage(rung: int) -> str:
    return f"halving-{rung}"


def _divisor(study: Study, rung: int) -> int:
    return int(study.search.eta ** (study.search.rungs - rung))


def _title(study: Study, rung: int) -> str:
    divisor = _divisor(study, rung)
    if divisor == 1:
        return "The last survivors with the whole load"
    what = "Every combination" if rung == 1 else "The survivors"
    return f"{what} with 1/{divisor} of the load"


STRATEGIES.register(Halving.name, Halving())
