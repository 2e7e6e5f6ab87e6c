"""Which load a candidate's search for capacity sends first: what the incumbent sustains, as earlier stages found it."""

from __future__ import annotations

from collections.abc import Sequence

from servelab.metrics.capacity import probe
from servelab.metrics.objective import per_basis
from servelab.search.decide import unfit
from servelab.search.planning import ProbeOf
from servelab.search.strategy import PastStage
from servelab.study.configuration import Configuration, key_of
from servelab.study.study import Study

_RAISED = {"request_rate": "capacity_per_s", "max_concurrency": "capacity_in_flight"}
"""What a search raises → the objective by which a candidate that sustains less is worse."""


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
