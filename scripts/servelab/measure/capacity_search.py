"""Searches the capacity of a server start: sends one load after the other, each a round, until the search has ended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa

from servelab.core.identity import content_id
from servelab.core.run_spec import RunSpec
from servelab.measure.inputs import RunInputs
from servelab.measure.outcome import Outcome, log_line
from servelab.measure.server import CandidateFailed
from servelab.metrics.capacity import BELOW_INCUMBENT, UNITS, find_capacity, judge, next_load
from servelab.metrics.tables.record_array import record_array

_OVERLOADED = ("saturated", "round_timeout", "requests_failed")
"""Failures of a round that say no more than that its load is above the capacity."""


def search_capacity(inputs: RunInputs, outcome: Outcome, send: Callable[[RunInputs, Outcome], None]) -> None:
    """Fills the outcome: its records are those of the highest load that holds, as round 0, beside those of all steps.

    `send` measures one load. Raises `CandidateFailed` if the lowest load does not hold (`slo_missed`), if the
    incumbent's capacity does not (`below_incumbent`), or if the server failed at a load.
    """
    spec, first = inputs.spec.capacity, inputs.spec.incumbent_capacity
    assert spec is not None
    steps: list[Outcome] = []
    while (load := next_load(spec, outcome.steps, first)) is not None:
        step = Outcome(logs_from=outcome.logs_from, served_by=outcome.served_by)
        try:
            send(replace(inputs, spec=_one_load(inputs.spec, load)), step)
        except CandidateFailed as failure:
            if failure.reason not in _OVERLOADED or not step.records:
                failure.message = f"at {load:g} {UNITS[spec.of]}: {failure.message}"
                raise
        finally:
            outcome.logs_from = step.logs_from
        number = len(steps)
        steps.append(step)
        outcome.step_records.append(_as_round(step.records[0], number))
        outcome.step_telemetry += [_as_round(table, number) for table in step.telemetry]
        requests = record_array(step.records[0])
        outcome.steps.append(judge(spec, load, requests[requests["phase"] != "settle"]))
        log_line(f"step {number}: {outcome.steps[-1].text(spec.of)}")
    found = find_capacity(spec, outcome.steps)
    if found is None and first is not None:
        bound = f"its capacity is below {first:g} {UNITS[spec.of]}, which the incumbent sustains"
        raise CandidateFailed(BELOW_INCUMBENT, f"{bound}: {outcome.steps[-1].text(spec.of)}")
    if found is None:
        raise CandidateFailed("slo_missed", f"the lowest load does not hold: {outcome.steps[-1].text(spec.of)}")
    log_line(f"capacity {found.load:.4g} {UNITS[spec.of]}: {found.text}")
    kept = steps[found.step]
    outcome.records, outcome.telemetry, outcome.client_rounds = kept.records, kept.telemetry, kept.client_rounds


def _one_load(spec: RunSpec, load: float) -> RunSpec:
    """A step's specification. Each start draws arrivals of its own; they are the same for all configurations.

    Near saturation a latency is as much a figure of the arrivals as of the server: starts with the same arrivals would
    agree with each other, and not with what the next user measures.
    """
    seed = int(content_id([spec.workload.parameters.get("seed", 0), spec.start])[:8], 16)
    workload = spec.workload.model_copy(update={"parameters": {**spec.workload.parameters, "seed": seed}})
    return spec.at(load).model_copy(update={"workload": workload})


def _as_round(table: pa.Table, number: int) -> pa.Table:
    """The rows of a round under another number."""
    position = table.schema.get_field_index("round")
    column = pa.array([number] * table.num_rows, type=table.schema.field(position).type)
    return table.set_column(position, table.schema.field(position), column)
