"""A whole search on runs that a function makes up: no files, no Snakemake, no server.

For tests of strategies, and for replaying them on a grid that was measured before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from servelab import search
from servelab.decide import NOT_RUN
from servelab.objective import per_basis
from servelab.plan import Configuration, Load, Plan, PlannedCandidate
from servelab.search import PastStage
from servelab.statistics import mean_ci95
from servelab.study import COMPARISON, Study

if TYPE_CHECKING:
    from servelab.project import Project


@dataclass(frozen=True)
class Measured:
    """What a made-up run gave."""

    rounds: Sequence[float] = ()
    """The objective in each round, as run: of the deployment, on no other basis."""
    accelerator_s: float = 0.0
    failed: str | None = None
    """Why it failed: a reason of docs/output.md."""
    constraints_missed: str | None = None
    slo_attainment: float | None = None


Measure = Callable[[Configuration, Load], Measured]
"""A configuration on a load → what measuring it gives. It is asked once for each run of the search."""


def run_search(project: Project, measure: Measure) -> list[PastStage]:
    """The search of a study from its first stage to its last, the reserved comparison left out.

    The last one's `winner` is the search's.
    """
    past: list[PastStage] = []
    known: dict[str, Measured] = {}
    for stage in search.stage_names(project.study):
        if stage == COMPARISON:
            break
        plan = search.plan(project, stage, past)
        load = Load(workload=project.study.objective.on, divisor=plan.load_divisor)
        for candidate in plan.candidates:
            for run in candidate.runs:
                if run.run_id not in known:
                    known[run.run_id] = measure(candidate.configuration, load)
        table, rounds = tables(project.study, plan, known)
        past.append(PastStage(plan, search.decide(project.study, plan, table, rounds), table))
    return past


def tables(study: Study, plan: Plan, measured: dict[str, Measured]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The stage's table and its rounds, with the columns of schemas.STAGE_TABLE and ROUNDS that a decision reads.

    `measured` has what came of each run by its id.
    """
    metric, _ = study.objective.metric_and_basis
    rows, rounds = [], []
    for position, candidate in enumerate(plan.candidates):
        run_id = candidate.runs[0].run_id if candidate.runs else None
        found = measured[run_id] if run_id else Measured()
        rows.append(_row(study, plan, position, candidate, run_id, found))
        rounds += [
            {"run_id": run_id, "metric": metric, "round": number, "value": value}
            for number, value in enumerate(found.rounds)
        ]
    columns = ["run_id", "metric", "round", "value"]
    return pd.DataFrame(rows), pd.DataFrame(rounds, columns=columns)


def _row(
    study: Study, plan: Plan, position: int, candidate: PlannedCandidate, run_id: str | None, found: Measured
) -> dict[str, Any]:
    reason, message, outcome = found.failed, found.failed, "failed" if found.failed else "ok"
    if candidate.not_run is not None:
        outcome, reason, message = NOT_RUN, "budget", candidate.not_run
    elif candidate.refused is not None:
        outcome, reason, message = "failed", "refused", candidate.refused
    _, basis = study.objective.metric_and_basis
    count = candidate.configuration.accelerators
    factor, _ = per_basis(basis, count, study.hardware.per_node)
    interval = mean_ci95(found.rounds) if outcome == "ok" else None
    return {
        "study": plan.study,
        "stage": plan.stage,
        "position": position,
        "candidate": candidate.candidate,
        "workload": Load(workload=study.objective.on, divisor=plan.load_divisor).name,
        "is_incumbent": candidate.is_incumbent,
        "run_id": run_id,
        "engine": candidate.configuration.engine,
        "outcome": outcome,
        "reason": reason,
        "message": message,
        "validity": "ok" if outcome == "ok" else None,
        "validity_note": None,
        "constraints_missed": found.constraints_missed,
        "slo_attainment": found.slo_attainment,
        "rounds": len(found.rounds),
        "success_rate": 1.0 if outcome == "ok" else None,
        "accelerators": count,
        "accelerators_per_node": study.hardware.per_node,
        "objective_value": factor * interval.value if interval else None,
        "accelerator_s": found.accelerator_s if run_id else None,
    }
