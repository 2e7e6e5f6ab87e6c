"""The deciding pair of a stage: which candidate is measured again beside the incumbent, and what that says."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from servelab.identity import content_id
from servelab.metrics import METRICS, round_values
from servelab.objective import per_basis
from servelab.parse import parse_run, read_run
from servelab.plan import Plan
from servelab.spec import RunSpec, Strict
from servelab.statistics import Interval, paired_ratio_ci95
from servelab.study import Study
from servelab.validity import verdict

if TYPE_CHECKING:
    from servelab.decide import Decision


SIDES = ("a", "b")


class PairSpec(Strict):
    """Two runs that are compared round by round; `a` is the incumbent."""

    a: RunSpec
    b: RunSpec
    cycles: int


def pair_id(pair: PairSpec) -> str:
    """Hash of all that can change the pair's figures; its folder's name."""
    return content_id(pair.model_dump(mode="json"))


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
    # one that takes over without such a gain is a choice turned back, which has to lose nothing
    takes_over = decision.changed and leader == decision.winner.candidate
    if leader is None or (gains[leader] <= study.objective.margin_percent and not takes_over):
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

    A side whose run is invalid shows nothing. `ServelabError` if the folder does not hold a complete pair.
    """
    assert planned.pair is not None and planned.candidate is not None and planned.pair_id is not None
    metric, basis = study.objective.metric_and_basis
    values, failures = [], []
    for side, spec, who in zip(SIDES, (planned.pair.a, planned.pair.b), ("incumbent", "candidate"), strict=True):
        status, data = read_run(study, folder / side)
        if status["outcome"] != "ok":
            failures.append(f"the {who} failed, {status['reason']}: {status['message']}")
            continue
        level, note = verdict(parse_run(study, spec, status, data)["checks"])
        if level == "invalid":
            failures.append(f"the {who}'s run is invalid: {note}")
        factor, _ = per_basis(basis, spec.hardware.count, study.hardware.per_node)
        values.append([value * factor for value in round_values(data, metric)])
    return PairEvidence(
        candidate=planned.candidate,
        pair_id=planned.pair_id,
        change=None if failures else paired_ratio_ci95(*values),
        rounds=2 * planned.pair.cycles,
        failed="; ".join(failures) or None,
    )
