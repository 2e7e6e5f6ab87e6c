"""The decision among many combinations at once.

Two things that a stage with a few candidates need not mind: of many that change nothing some look better by chance, and
of many that are as good as each other noise alone says which is best.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from servelab.decide import (
    Decision,
    Row,
    Verdict,
    compare,
    decide_stage,
    objective_rounds,
    relative_change,
    rounds_of_objective,
    unfit,
)
from servelab.deciding_pair import PairEvidence
from servelab.metrics import METRICS
from servelab.plan import Plan
from servelab.statistics import ratio_interval
from servelab.study import Study

if TYPE_CHECKING:
    import pandas as pd

CHANCE = 0.05
"""How often chance may promote any of the candidates, if none is better than the incumbent."""


def decide_among_many(
    study: Study, plan: Plan, table: pd.DataFrame, rounds: pd.DataFrame, pair: PairEvidence | None
) -> Decision:
    """As `servelab.decide.decide_stage` decides, but for two things.

    A candidate is better only where its interval excludes zero at 1 − 0.05 / candidates (Bonferroni's correction). And
    of the better ones that cannot be told from the best the winner is the one that changes least on the incumbent, so
    that no choice is in the answer that noise alone put there. With a `pair` the pair decides.
    """
    decision = decide_stage(study, plan, table, rounds, pair)
    if pair is not None or not decision.changed:
        return decision
    rows: list[Row] = table.sort_values("position").to_dict("records")  # type: ignore[assignment]
    rounds = rounds_of_objective(study, rounds)
    tried = sum(unfit(study, row) is None for row in rows[1:])
    verdicts = [
        _by_chance(study, rows, verdict, position, rounds, tried)
        for position, verdict in enumerate(decision.candidates)
    ]
    sign = 1 if METRICS.get(study.objective.metric).higher_is_better else -1
    better = [position for position, verdict in enumerate(verdicts) if verdict.verdict == "better"]
    if not better:
        reason = f"no candidate beats {verdicts[0].candidate} by more than the best of so many would by chance"
        return _with(decision, verdicts, 0, reason)
    best = max(better, key=lambda position: sign * float(rows[position]["objective_value"]))
    equals = [
        position
        for position in better
        if position == best or compare(study, *relative_change(study, rows[position], rows[best], rounds))[0] != "worse"
    ]
    winner = min(equals, key=lambda at: (_changes(plan, at), -sign * float(rows[at]["objective_value"])))
    why = verdicts[winner].why
    if winner != best:
        why += f"; of {len(equals)} that cannot be told from the best, {verdicts[best].candidate}, it changes least"
    verdicts[winner] = verdicts[winner].model_copy(update={"verdict": "winner", "why": why})
    return _with(decision, verdicts, winner, f"{verdicts[winner].candidate}: {why}")


def _by_chance(
    study: Study, rows: list[Row], verdict: Verdict, position: int, rounds: pd.DataFrame, tried: int
) -> Verdict:
    """A better candidate's verdict once it is minded how many were `tried`; the others' as it is."""
    if verdict.verdict not in ("winner", "better"):
        return verdict
    found = verdict.model_copy(update={"verdict": "better"})
    if verdict.change_ci95_low_percent is None or verdict.change_ci95_high_percent is None:
        return found  # nothing to compare with, or a single round: only the margin speaks
    values = [objective_rounds(study, row, rounds) for row in (rows[0], rows[position])]
    _, low, high = ratio_interval(values[0], values[1], 1 - CHANCE / tried)
    if low is None or high is None or not low <= 0 <= high:
        return found
    interval = f"{low:+.1f} to {high:+.1f} %" if math.isfinite(low + high) else "unbounded"
    why = f"{verdict.why}; as one of {tried} tried it may be so by chance ({interval})"
    return verdict.model_copy(update={"verdict": "within noise", "why": why})


def _changes(plan: Plan, position: int) -> int:
    """How many things a candidate changes on the incumbent."""
    changes = plan.candidates[position].changes
    return sum(len(value) if isinstance(value, dict) else 1 for value in changes.values())


def _with(decision: Decision, verdicts: list[Verdict], winner: int, reason: str) -> Decision:
    chosen = decision.winner.model_copy(
        update={"candidate": verdicts[winner].candidate, "run_id": verdicts[winner].run_id}
    )
    return decision.model_copy(
        update={"candidates": verdicts, "winner": chosen, "changed": winner != 0, "reason": reason}
    )
