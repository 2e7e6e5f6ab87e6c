"""Parses the raw records of a plan's runs into tables: metrics and checks of each run, and a row per candidate."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import pyarrow as pa

from servelab.measure.run_files import RunStatus
from servelab.metrics.capacity import find_capacity
from servelab.metrics.objective import Beyond, missed_constraints, per_basis
from servelab.metrics.statistics import mean_ci95
from servelab.metrics.tables import schemas
from servelab.results.answers import compare_answers
from servelab.results.checks import disturbance, disturbing, place_columns, verdict
from servelab.results.compare_with_baseline import counted_starts
from servelab.results.physical_limit import LIMIT_COLUMNS
from servelab.results.run_records import Figures, parse_run, read_run
from servelab.study.plan import Plan, PlannedRun
from servelab.study.recorded.plan import RecordedPlan
from servelab.study.recorded.study import RecordedStudy
from servelab.study.study import Study

HEADLINE = {
    "output_tokens_per_s": ("output_tokens_per_s", "mean"),
    "requests_per_s": ("requests_per_s", "mean"),
    "total_tokens_per_s": ("total_tokens_per_s", "mean"),
    "ttft_ms_mean": ("ttft_ms", "mean"),
    "ttft_ms_p99": ("ttft_ms", "p99"),
    "tpot_ms_mean": ("tpot_ms", "mean"),
    "tpot_ms_p99": ("tpot_ms", "p99"),
    "itl_ms_mean": ("itl_ms", "mean"),
    "e2el_ms_mean": ("e2el_ms", "mean"),
    "slo_attainment": ("slo_attainment", "mean"),
}
"""Column of the stage table → metric and statistic whose mean over starts it is."""
WITH_INTERVAL = "total_tokens_per_s"
"""The column of these that has an interval."""

NO_START: dict[str, Any] = {
    **dict.fromkeys(("rounds", "starts"), 0),
    **{f"start_{each}": [] for each in ("labels", "values", "delays_percent", "jobs")},
    **{f"run_{each}": [] for each in ("ids", "places")},
}
"""Columns of a candidate without runs."""
SATURATED = "saturated"
"""Outcome of a run that was not sent, as its server start was saturated at a lower rate."""
LEVELS = ("ok", "suspect", "invalid")
"""Validity of a run, the worst last."""


class Start(NamedTuple):
    """A run of a candidate, its status, and its figures (empty if it failed)."""

    run: PlannedRun
    status: RunStatus
    figures: Figures


def columns_of_starts(study: Study, accelerators: int, starts: Sequence[Start]) -> dict[str, Any]:
    """The columns of schemas.STAGE_TABLE that come from a candidate's runs on one workload, in the order of its starts.

    Figures are means over the starts that went well, without the disturbed ones if there are others; intervals are
    Student's over them. One failed start makes the candidate `failed`: a server that starts only sometimes is a
    finding. But one that failed while it was disturbed counts only if no other start went well.
    """
    went_well = any(start.status.is_ok for start in starts)
    counted = [start for start in starts if start.status.is_ok or not (went_well and start.status.disturbed)]
    well = [start for start in starts if start.status.is_ok]
    ends = [study, study.second] if study.second else [study]
    disturbances = {start.run.run_id: disturbance(start.figures["checks"]) for start in well}
    valued = [(start, [_value(end, start, accelerators) for end in ends]) for start in well]
    measured = [(start, values) for start, values in valued if None not in values]
    delays = [_delay_percent(start, disturbances[start.run.run_id]) for start, _ in measured]
    of_starts: dict[str, list[Any]] = {
        "start_values": [values[0] for _, values in measured],
        "start_delays_percent": delays,
    }
    values = [of_starts["start_values"][number] for number in counted_starts(of_starts)]
    well = [start for start in well if not disturbances[start.run.run_id]] or well
    natural = [_by_metric(start).get("output_length_tokens", {}) for start in well if start.run.spec.natural_stops]
    lengths = [row["mean"] for row in natural if row.get("mean") is not None]
    return {
        **_headline(well),
        **interval_columns("objective", "_value", values),
        "workload": starts[0].run.workload,
        "run_id": starts[0].run.run_id,
        "run_ids": [start.run.run_id for start in starts],
        **place_columns([start.status.place for start in starts]),
        "starts": len(values),
        "start_labels": [start.run.start for start, _ in measured],
        **of_starts,
        "second_values": [values[1] for _, values in measured] if study.second else None,
        "start_jobs": [start.status.job_id for start, _ in measured],
        "constraints_missed": _constraints(study, well),
        **_capacity(well),
        "natural_length_tokens": fmean(lengths) if lengths else None,
        **interval_columns("startup_s", "", [s.status.startup_s for s in starts if s.status.startup_s is not None]),
        **_outcome(counted),
        **_validity(starts),
        **_limits(well),
        "disturbed": _disturbed(counted, [disturbances[start.run.run_id] for start in well]),
        "rounds": sum(start.status.rounds for start in starts),
        "success_rate": _success_rate([start.status for start in counted]),
        "accelerator_s": sum(start.status.accelerator_s for start in starts),
        "load_accelerator_s": sum(start.status.load_s for start in starts) * accelerators,
    }


def _delay_percent(start: Start, disturbance: str | None) -> float:
    """How long a start waited for CPUs, if that disturbed it; 0 if nothing did, NaN if something else did."""
    if disturbance is None:
        return 0.0
    waited = [finding["check"] for finding in disturbing(start.figures["checks"])] == ["busy_machine"]
    return next((row["percent"] for row in start.figures["delay"] if waited), math.nan)


def _disturbed(starts: Sequence[Start], of_well: Sequence[str | None]) -> str | None:
    """The disturbance of the starts that count, or of those that failed: a failure without one is a result."""
    failed = [start.status.disturbed for start in starts if not start.status.is_ok]
    if not all(failed):
        return None
    return "; ".join(sorted({what for what in [*of_well, *failed] if what})) or None


def interval_columns(name: str, suffix: str, values: Sequence[float]) -> dict[str, float | None]:
    """Columns `<name><suffix>`, `<name>_ci95_low` and `<name>_ci95_high`; none without values."""
    if not values:
        return {}
    mean, low, high = mean_ci95(values)
    return {f"{name}{suffix}": mean, f"{name}_ci95_low": low, f"{name}_ci95_high": high}


def _value(study: Study, start: Start, accelerators: int) -> float | None:
    """The objective on a start, on its basis: a mean is that of its rounds; None if it could not be computed."""
    metric, basis = study.objective.metric_and_basis
    value = _by_metric(start)[metric][study.objective.statistic]
    return None if value is None else value * per_basis(basis, accelerators, study.hardware.per_node)[0]


def _by_metric(start: Start) -> dict[str, dict[str, Any]]:
    return {entry["metric"]: entry for entry in start.figures["metrics"]}


def _headline(well: Sequence[Start]) -> dict[str, float | None]:
    columns: dict[str, float | None] = {}
    summaries = [_by_metric(start) for start in well]
    for name, (metric, statistic) in HEADLINE.items():
        found = [summary[metric][statistic] for summary in summaries if metric in summary]
        if values := [value for value in found if value is not None]:
            columns |= interval_columns(name, "", values) if name == WITH_INTERVAL else {name: fmean(values)}
    return columns


def _limits(well: Sequence[Start]) -> dict[str, Any]:
    """The columns of the physical limit: means over the starts that have one."""
    rows = [row for start in well for row in start.figures.get("physical_limit", [])]
    found: dict[str, Any] = {}
    for name in LIMIT_COLUMNS:
        values = [row[name] for row in rows if row[name] is not None]
        if values:
            found[name] = values[0] if name == "limit_note" else fmean(values)
    return found


def _capacity(well: Sequence[Start]) -> dict[str, Any]:
    """The columns of a search for capacity: why it ended on each start, and the load that all of them sustain."""
    found = {
        start.run.start: each
        for start in well
        if (spec := start.run.spec.capacity) is not None
        if (each := find_capacity(spec, start.status.steps)) is not None
    }
    notes = [f"{label}: {each.text}" for label, each in found.items()]
    loads = [each.load for each in found.values()]
    return {"capacity_note": "; ".join(notes) or None, "capacity_load": min(loads, default=None)}


def _constraints(study: Study, well: Sequence[Start]) -> str | None:
    """Constraints that the starts miss together, on the deciding workload."""
    if not well or well[0].run.workload != study.objective.on:
        return None
    counts: dict[tuple[str, str], Beyond] = {}
    for row in (row for start in well for row in start.figures["limits"]):
        key = (row["metric"], row["statistic"])
        observations, beyond = counts.get(key, Beyond(0, 0))
        counts[key] = Beyond(observations + row["observations"], beyond + row["beyond"])
    summaries = [_by_metric(start) for start in well]
    together: dict[str, dict[str, float | None]] = {
        metric: _together(limits, [summary[metric] for summary in summaries])
        for metric, limits in study.objective.constraints.items()
    }
    return missed_constraints(study.objective.constraints, together, counts)


def _together(statistics: Iterable[str], rows: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    """Statistics of several starts: their smallest minimum, their largest maximum, else the mean; a mean's interval."""
    found: dict[str, float | None] = {}
    for statistic in statistics:
        values = [value for row in rows if (value := row[statistic]) is not None]
        combine = {"minimum": min, "maximum": max}.get(statistic, fmean)
        found[statistic] = combine(values) if values else None
        if statistic == "mean" and values:
            _, found["ci95_low"], found["ci95_high"] = mean_ci95(values)
    return found


def _outcome(starts: Sequence[Start]) -> dict[str, str | None]:
    failed = [start for start in starts if not start.status.is_ok]
    failed.sort(key=lambda start: start.status.outcome == SATURATED)  # stable: a failure says more
    first = (failed or starts)[0].status
    message = first.message
    if failed and len(starts) > 1:
        alike = [start for start in failed if start.status.outcome == first.outcome]
        labels = ", ".join(start.run.start for start in alike)
        message = f"{message or first.reason} ({len(alike)} of {len(starts)} starts {first.outcome}: {labels})"
    return {"outcome": first.outcome, "reason": first.reason, "message": message}


def _validity(starts: Sequence[Start]) -> dict[str, str | None]:
    """The worst validity of the starts that went well, and what made them so."""
    found = {start.run.start: verdict(start.figures["checks"]) for start in starts if start.status.is_ok}
    worst = max((level for level, _ in found.values()), key=LEVELS.index, default=None)
    notes = [f"{label}: {note}" if len(starts) > 1 else note for label, (_, note) in found.items() if note]
    return {"validity": worst, "validity_note": "; ".join(notes) or None}


def _success_rate(statuses: Sequence[RunStatus]) -> float:
    """Successful requests / requests of all runs; of runs that sent none, the mean of what they say."""
    requests = sum(status.requests for status in statuses)
    if not requests:
        return fmean(status.success_rate for status in statuses)
    return sum(status.success_rate * status.requests for status in statuses) / requests


TABLES = {
    "table": schemas.STAGE_TABLE,
    "points": schemas.STAGE_TABLE,
    "metrics": schemas.METRICS,
    "rounds": schemas.ROUNDS,
    "checks": schemas.CHECKS,
    "answers": schemas.STAGE_ANSWERS,
}
"""Tables of a parsed stage: name → schema."""

Rows = list[dict[str, Any]]


def candidate_columns(study: Study | RecordedStudy, plan: Plan | RecordedPlan, position: int) -> dict[str, Any]:
    """The columns of schemas.STAGE_TABLE that a candidate has before it runs."""
    candidate = plan.candidates[position]
    return {
        "study": plan.study,
        "stage": plan.stage,
        "position": position,
        "candidate": candidate.candidate,
        "is_incumbent": candidate.is_incumbent,
        "engine": candidate.configuration.engine,
        "engine_version": study.engines[candidate.configuration.engine].version,
        "model_variant": candidate.configuration.model,
        "changes": json.dumps(candidate.changes, sort_keys=True),
        "command": candidate.command,
        "accelerators": candidate.configuration.accelerators,
        "accelerators_per_node": study.hardware.per_node,
        "objective": study.objective.metric,
        "objective_per": study.objective.metric_and_basis[1],
    }


def parse_plan(study: Study, plan: Plan, runs_folder: Path) -> dict[str, pa.Table]:
    """The `TABLES` of a plan whose runs are all measured; `ServelabError` names a broken or missing run folder."""
    rows: dict[str, Rows] = {name: [] for name in TABLES}
    answered = compare_answers(study, plan, runs_folder)
    rows["answers"] = answered.rows
    for position, candidate in enumerate(plan.candidates):
        row = candidate_columns(study, plan, position)
        if candidate.refused is not None:
            refusal = {"workload": study.objective.on, "outcome": "failed", "reason": "refused"}
            rows["table"].append({**row, **refusal, **NO_START, "message": candidate.refused})
        if candidate.not_run is not None:
            left_out = {"workload": study.objective.on, "outcome": "not run", "reason": "budget"}
            rows["table"].append({**row, **left_out, **NO_START, "message": candidate.not_run})
        starts: dict[str, list[Start]] = {}
        for run in (*candidate.runs, *candidate.points):
            status, data = read_run(study, run.workload, run.spec, runs_folder / run.run_id)
            parsed = parse_run(study, run.spec, status, data) if status.is_ok else {}
            starts.setdefault(run.workload, []).append(Start(run, status, parsed))
            names = {"study": plan.study, "run_id": run.run_id, "workload": run.workload, "start": run.start}
            for name in TABLES.keys() & parsed.keys():
                rows[name] += [{**names, **entry} for entry in parsed[name]]
        accelerators = candidate.configuration.accelerators
        found: dict[str, dict[str, Any]] = {
            workload: row | columns_of_starts(study, accelerators, each) for workload, each in starts.items()
        }
        points = [found.pop(workload) for workload in {run.workload: None for run in candidate.points}]
        for name in ("accelerator_s", "load_accelerator_s"):
            for deciding in found.values() if points else ():
                deciding[name] += sum(point[name] for point in points)
        if asked := answered.columns.get(position):
            for deciding in (row for workload, row in found.items() if workload == study.objective.on):
                deciding |= asked
                deciding["accelerator_s"] += answered.accelerator_s[position]
        rows["table"] += found.values()
        rows["points"] += points
    return {name: pa.Table.from_pylist(rows[name], schema=schema) for name, schema in TABLES.items()}
