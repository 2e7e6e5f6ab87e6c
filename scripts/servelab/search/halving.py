"""Successive halving: every combination with a short load, the best of them with longer ones, the last with all of it.

Jamieson and Talwalkar 2016, "Non-stochastic best arm identification and hyperparameter optimization"; with one
difference, for a short load tells little: who cannot be told from the best survives too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from servelab.decide import Decision, thin_out, undecided, unfit
from servelab.deciding_pair import PairEvidence
from servelab.metrics import METRICS
from servelab.plan import Load, Plan, Variant, baseline, make_plan
from servelab.search import STRATEGIES, Outline, PastStage
from servelab.search.among_many import decide_among_many
from servelab.search.product import product
from servelab.statistics import pooled_relative_half_widths
from servelab.study import Study

if TYPE_CHECKING:
    from servelab.project import Project


class Halving:
    """Stages `halving-1` to `halving-<rungs>`; the baseline is the incumbent of each and always goes on."""

    name = "halving"
    honours = frozenset({"accelerator_hours"})
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
                new_runs=[start, *engines],
                most_runs=1 + len(variants),
            )
            for rung in rungs
        ]

    def summary(self, study: Study) -> str | None:
        """See `Strategy.summary`."""
        count = whole = len(product(study))
        parts = []
        for rung in range(1, study.search.rungs + 1):
            divisor = _divisor(study, rung)
            load = f"1/{divisor} of the load" if divisor > 1 else "all of it"
            parts.append(f"{1 + count}{' runs' if rung == 1 else ' or more'} with {load}")
            count = -(-count // study.search.eta)
        return f"search: halving, {', '.join(parts)}; a grid has {1 + whole} with all of it"

    def loads(self, study: Study) -> list[Load]:
        """See `Strategy.loads`."""
        divisors = [_divisor(study, rung) for rung in range(1, study.search.rungs)]
        return [Load(workload=study.objective.on, divisor=divisor) for divisor in divisors]

    def plan(self, project: Project, stage: str, past: Sequence[PastStage]) -> Plan:
        """See `Strategy.plan`; survivors stand in the order of their last objective, the best first."""
        study, rung = project.study, len(past) + 1
        if past:
            tried = {candidate.candidate: candidate for candidate in past[-1].plan.candidates}
            going_on = [tried[name] for name in past[-1].decision.survivors]
            variants = [Variant(each.candidate, each.configuration, each.changes) for each in going_on]
        else:
            variants = product(study)
        title, divisor = _title(study, rung), _divisor(study, rung)
        return make_plan(project, _stage(rung), title, baseline(project), variants, divisor=divisor)

    def decide(
        self, study: Study, plan: Plan, table: pd.DataFrame, rounds: pd.DataFrame, pair: PairEvidence | None
    ) -> Decision:
        """The last rung by `decide_among_many`; before it, who goes on."""
        if plan.stage == _stage(study.search.rungs):
            return decide_among_many(study, plan, table, rounds, pair)
        kept, rule = survivors(study, table, rounds)
        return thin_out(study, plan, table, rounds, kept, rule)

    def assume(self, study: Study, plan: Plan) -> Decision:
        """One in `eta` goes on, whoever that is."""
        names = [candidate.candidate for candidate in plan.candidates if not candidate.is_incumbent and candidate.runs]
        return undecided(study, plan, names[: -(-len(names) // study.search.eta)])


def survivors(study: Study, table: pd.DataFrame, rounds: pd.DataFrame) -> tuple[list[str], str]:
    """Candidates of a rung that go on, the best first, and the rule in words; the incumbent is not among them.

    One in `eta` of those that could win, and everyone whose difference to the best has a 95 % interval that includes 0.
    It rests on the noise of all candidates of the rung together, for two rounds of one of them say next to nothing.
    Single rounds have no interval: only the order speaks.
    """
    metric, _ = study.objective.metric_and_basis
    higher_is_better = METRICS.get(metric).higher_is_better
    fit = [row for row in table.to_dict("records") if unfit(study, row) is None]  # type: ignore[arg-type]
    fit.sort(key=lambda row: row["objective_value"], reverse=bool(higher_is_better))
    values = {str(run): list(group["value"]) for run, group in rounds[rounds["metric"] == metric].groupby("run_id")}
    widths = pooled_relative_half_widths([values.get(str(row["run_id"]), []) for row in fit])
    candidates = [(row, width) for row, width in zip(fit, widths, strict=True) if not row["is_incumbent"]]
    if not candidates:
        return [], "none could win"
    count = -(-len(candidates) // study.search.eta)
    best = _half_width(*candidates[0])
    kept = [
        str(row["candidate"])
        for position, (row, width) in enumerate(candidates)
        if position < count or _difference(row, candidates[0][0]) <= math.hypot(_half_width(row, width), best)
    ]
    rule = f"the best {count} of {len(candidates)}"
    if len(kept) > count:
        rule += f", and {len(kept) - count} that cannot be told from the best"
    return kept, rule


def _half_width(row: dict[Any, Any], width: float) -> float:
    return float(row["objective_value"]) * width if math.isfinite(width) else 0.0


def _difference(row: dict[Any, Any], best: dict[Any, Any]) -> float:
    return abs(float(row["objective_value"]) - float(best["objective_value"]))


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
