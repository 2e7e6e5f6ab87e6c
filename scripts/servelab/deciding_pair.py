"""The deciding pair of a stage: which candidate is measured again beside the incumbent, and what that says."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from servelab import schemas
from servelab.errors import ServelabError
from servelab.metrics import METRICS, RunData, round_values
from servelab.objective import per_basis
from servelab.pair import SIDES, PairSpec, pair_id
from servelab.plan import Plan
from servelab.spec import Strict
from servelab.statistics import Interval, paired_ratio_ci95
from servelab.study import Study

if TYPE_CHECKING:
    from servelab.decide import Decision


class PlannedPair(Strict):
    """What a stage measures again; `pair` is None where nothing is, and `reason` says why."""

    study: str
    stage: str
    candidate: str | None
    reason: str
    pair_id: str | None
    pair: PairSpec | None


@dataclass(frozen=True)
class PairEvidence:
    """What an interleaved pair has shown."""

    candidate: str
    pair_id: str
    change: Interval | None
    """Percent change of the objective, candidate against incumbent; None if a side failed."""
    rounds: int
    """Rounds of each side."""
    failed: str | None
    """Which side failed and how; None if neither did."""


def choose_pair(study: Study, plan: Plan, decision: Decision) -> PlannedPair:
    """The candidate that would gain most over the incumbent beyond the margin, noise aside, with the incumbent.

    `decision` is the stage's as its runs alone give it. Nothing is measured again where no candidate gains more than
    the margin, or where the incumbent failed and so cannot be compared with.
    """
    sign = 1 if METRICS.get(study.objective.metric).higher_is_better else -1
    runs = {candidate.candidate: candidate.runs for candidate in plan.candidates}
    gains = {
        entry.candidate: sign * entry.change_percent
        for entry in decision.candidates
        if entry.verdict in ("winner", "better", "within noise") and entry.change_percent is not None
    }
    leader = max(gains, key=lambda name: gains[name], default=None)
    if leader is None or gains[leader] <= study.objective.margin_percent:
        return PlannedPair(
            study=plan.study,
            stage=plan.stage,
            candidate=None,
            reason="no candidate is ahead of the incumbent by more than the margin",
            pair_id=None,
            pair=None,
        )
    incumbent = plan.candidates[0].candidate
    pair = PairSpec(a=runs[incumbent][0].spec, b=runs[leader][0].spec, cycles=study.objective.interleaved_cycles)
    return PlannedPair(
        study=plan.study,
        stage=plan.stage,
        candidate=leader,
        reason=f"{leader} is ahead of {incumbent} by {gains[leader]:.1f} %",
        pair_id=pair_id(pair),
        pair=pair,
    )


def read_pair(planned: PlannedPair, folder: Path, study: Study) -> PairEvidence:
    """What the measured pair in `folder` says of the study's objective, on its basis.

    `ServelabError` if the folder does not hold that pair.
    """
    assert planned.pair is not None and planned.candidate is not None and planned.pair_id is not None
    try:
        status = json.loads((folder / "status.json").read_text(encoding="utf-8"))
        data = {side: _read_side(folder / side, study) for side in SIDES}
    except (OSError, ValueError, pa.ArrowException) as error:
        raise ServelabError(f"{folder}: not a complete pair ({error}); remove the folder and run again") from None
    rounds = 2 * planned.pair.cycles
    if status["outcome"] != "ok":
        who = "the incumbent" if status["failed_side"] == "a" else "the candidate"
        return PairEvidence(planned.candidate, planned.pair_id, None, rounds, f"{who} failed: {status['message']}")
    metric, basis = study.objective.metric_and_basis
    scaled = []
    for side, spec in zip(SIDES, (planned.pair.a, planned.pair.b), strict=True):
        factor, _ = per_basis(basis, spec.hardware.count, study.hardware.per_node)
        scaled.append([value * factor for value in round_values(data[side], metric)])
    return PairEvidence(planned.candidate, planned.pair_id, paired_ratio_ci95(*scaled), rounds, None)


def _read_side(folder: Path, study: Study) -> RunData:
    return RunData(
        pq.read_table(folder / "requests.parquet", schema=schemas.RUN_REQUESTS),
        study.objective.slos,
        pq.read_table(folder / "telemetry.parquet", schema=schemas.TELEMETRY),
    )
