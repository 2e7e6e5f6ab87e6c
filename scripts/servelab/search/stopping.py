"""Ends a search early, as `search.stop_when` of a study says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from servelab.metrics import METRICS
from servelab.plan import Plan, PlannedCandidate
from servelab.study import Study

if TYPE_CHECKING:
    from servelab.search import PastStage

SECONDS_PER_HOUR = 3600.0


def stop(study: Study, plan: Plan, past: Sequence[PastStage]) -> Plan:
    """The plan of a stage, cut to what `stop_when` leaves of it. Past stages without a table stop nothing."""
    if not plan.applies or not past or any(stage.table is None for stage in past):
        return plan
    reason = _reached(study, past[-1])
    if reason is not None:
        return plan.model_copy(update={"applies": False, "reason": reason, "candidates": plan.candidates[:1]})
    hours = study.search.stop_when.accelerator_hours
    return plan if hours is None else _within(hours, plan, past)


def spent_s(past: Sequence[PastStage]) -> dict[str, float]:
    """Accelerator-seconds of each run of past stages by its id; a run that two stages share is there once."""
    found: dict[str, float] = {}
    for stage in past:
        assert stage.table is not None
        rows = stage.table.dropna(subset=["run_id", "accelerator_s"])
        found |= dict(zip(rows["run_id"], rows["accelerator_s"], strict=True))
    return found


def _reached(study: Study, last: PastStage) -> str | None:
    """What the incumbent has reached that ends the search, or None."""
    assert last.table is not None
    wanted, objective = study.search.stop_when, study.objective
    rows = last.table[last.table["run_id"] == last.decision.winner.run_id]
    if rows.empty or rows.iloc[0]["outcome"] != "ok":
        return None
    row = rows.iloc[0]
    if wanted.objective_reached is not None:
        is_more = row["objective_value"] >= wanted.objective_reached
        is_less = row["objective_value"] <= wanted.objective_reached
        if is_more if METRICS.get(objective.metric).higher_is_better else is_less:
            value = f"{row['objective_value']:g}"
            return f"the incumbent's {objective.metric} is {value}, {wanted.objective_reached:g} was wanted"
    if wanted.slo_reached is not None and row["slo_attainment"] >= wanted.slo_reached:
        share = f"{100 * row['slo_attainment']:g} %"
        return f"{share} of the incumbent's requests keep the SLOs, {100 * wanted.slo_reached:g} % were wanted"
    return None


def _within(hours: float, plan: Plan, past: Sequence[PastStage]) -> Plan:
    """The plan without the runs that the budget does not reach for, the last candidates first.

    A run of this stage is taken to cost what past runs did on average; where those had another load, in proportion to
    it, which is too much rather than too little, for a server's start does not grow with the load.
    """
    costs = spent_s(past)
    sizes = {run.run_id: run.load_size for stage in past for each in stage.plan.candidates for run in each.runs}
    load = sum(sizes[run_id] for run_id in costs)
    if not load:
        return plan
    spent, left_s = sum(costs.values()), SECONDS_PER_HOUR * hours - sum(costs.values())
    kept: list[PlannedCandidate] = []
    for candidate in plan.candidates:
        new = [run for run in candidate.runs if run.run_id not in costs]
        cost_s = spent / load * sum(run.load_size for run in new)
        if new and not candidate.is_incumbent and cost_s > left_s:
            reason = (
                f"budget of {hours:g} accelerator-hours: {spent / SECONDS_PER_HOUR:.3g} are spent, and this run would "
                f"take about {cost_s / SECONDS_PER_HOUR:.2g} of the {max(0.0, left_s) / SECONDS_PER_HOUR:.2g} left"
            )
            kept.append(candidate.model_copy(update={"runs": [], "not_run": reason}))
            continue
        left_s -= cost_s
        kept.append(candidate)
    return plan.model_copy(update={"candidates": kept})
