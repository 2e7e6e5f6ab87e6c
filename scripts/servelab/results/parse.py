"""Parses the raw records of a plan's runs into tables: metrics and checks of each run, and a row per candidate."""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from servelab.core.errors import ServelabError
from servelab.core.run_spec import RunSpec
from servelab.measure.clients import CLIENTS
from servelab.measure.run_files import RunStatus
from servelab.metrics.capacity import capacity_values, find_capacity
from servelab.metrics.definitions import RunData, summarise, summarise_rounds
from servelab.metrics.percentile_limits import count_beyond
from servelab.metrics.tables import schemas
from servelab.metrics.tables.io import read_bytes
from servelab.metrics.timeline import timeline
from servelab.results.answers import compare_answers
from servelab.results.checks import Evidence, check_run
from servelab.results.kept_figures import Figures, KeptFigures, RunFiles, incomplete, read_files
from servelab.results.physical_limit import limit_of_run
from servelab.results.start_columns import NO_START, Start, columns_of_starts
from servelab.study.plan import Plan, PlannedRun
from servelab.study.study import Study

TABLES = {
    "table": schemas.STAGE_TABLE,
    "points": schemas.STAGE_TABLE,
    "metrics": schemas.METRICS,
    "rounds": schemas.ROUNDS,
    "checks": schemas.CHECKS,
    "timeline": schemas.TIMELINE,
    "answers": schemas.STAGE_ANSWERS,
}
"""Tables of a parsed stage: name → schema."""

Rows = list[dict[str, Any]]

_BYTES_PER_PROCESS = 50_000_000
"""Records to parse for which one more process is worth the time that it takes to start."""


def parse_plan(
    study: Study, plan: Plan, runs_folder: Path, kept: KeptFigures | None = None, processes: int = 1
) -> dict[str, pa.Table]:
    """The `TABLES` of a plan whose runs are all measured.

    Figures in `kept` are used, and what is parsed is put there. Many runs are parsed in up to `processes` processes. A
    broken or missing run folder is a `ServelabError` that names it.
    """
    rows: dict[str, Rows] = {name: [] for name in TABLES}
    runs = [run for candidate in plan.candidates for run in (*candidate.runs, *candidate.points)]
    measured = _figures(study, runs, runs_folder, kept, processes)
    answered = compare_answers(study, plan, runs_folder)
    rows["answers"] = answered.rows
    for position, candidate in enumerate(plan.candidates):
        row = {
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
        if candidate.refused is not None:
            refusal = {"workload": study.objective.on, "outcome": "failed", "reason": "refused"}
            rows["table"].append({**row, **refusal, **NO_START, "message": candidate.refused})
        if candidate.not_run is not None:
            left_out = {"workload": study.objective.on, "outcome": "not run", "reason": "budget"}
            rows["table"].append({**row, **left_out, **NO_START, "message": candidate.not_run})
        starts: dict[str, list[Start]] = {}
        for run in (*candidate.runs, *candidate.points):
            status, parsed = next(measured)
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


def _figures(
    study: Study, runs: Sequence[PlannedRun], runs_folder: Path, kept: KeptFigures | None, processes: int
) -> Iterator[tuple[RunStatus, Figures]]:
    """Status and figures of each run, in order."""
    found = [_look_up(runs_folder / run.run_id, run.run_id, kept) for run in runs]
    missing = [run for run, (_, figures, _) in zip(runs, found, strict=True) if figures is None]
    parse = partial(_parse_and_keep, study, runs_folder, kept)
    size = sum(size for _, figures, size in found if figures is None)
    processes = min(processes, len(missing), size // _BYTES_PER_PROCESS)
    print(f"{len(missing):,} of {len(runs):,} runs parsed, the figures of the others were kept")
    with ExitStack() as stack:
        if processes < 2:
            parsed: Iterator[Figures] = map(parse, missing)
        else:
            # not forked: the threads of pyarrow would be missing
            spawn = multiprocessing.get_context("spawn")
            pool = stack.enter_context(ProcessPoolExecutor(processes, mp_context=spawn))
            parsed = pool.map(parse, missing, chunksize=-(-len(missing) // (4 * processes)))
        for status, figures, _ in found:
            yield status, next(parsed) if figures is None else figures


def _look_up(folder: Path, run_id: str, kept: KeptFigures | None) -> tuple[RunStatus, Figures | None, int]:
    """Status of a run, its kept figures if there are any, and the size of its records in bytes."""
    files = read_files(folder)
    figures = None if kept is None else kept.read(run_id, kept.key(run_id, files))
    return _status(files, folder), figures, len(files.requests) + len(files.telemetry or b"")


def _parse_and_keep(study: Study, runs_folder: Path, kept: KeptFigures | None, run: PlannedRun) -> Figures:
    files = read_files(runs_folder / run.run_id)
    status, data = _read(study, run.workload, run.spec, runs_folder / run.run_id, files)
    figures = parse_run(study, run.spec, status, data) if status.is_ok else {}
    if kept is not None:
        kept.write(run.run_id, kept.key(run.run_id, files), figures)
    return figures


def read_run(study: Study, workload: str, spec: RunSpec, folder: Path) -> tuple[RunStatus, RunData]:
    """Status and records of the run of a workload in a folder; `ServelabError` if it is not complete."""
    return _read(study, workload, spec, folder, read_files(folder))


def _read(study: Study, workload: str, spec: RunSpec, folder: Path, files: RunFiles) -> tuple[RunStatus, RunData]:
    price = study.hardware.price_per_accelerator_hour
    try:
        records = read_bytes(files.requests, schemas.RUN_REQUESTS)
        samples = None if files.telemetry is None else read_bytes(files.telemetry, schemas.TELEMETRY)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise incomplete(folder, error) from None
    price = None if price is None else price * spec.hardware.count
    status = _status(files, folder)
    capacity = capacity_values(spec.capacity, status.steps)
    return status, RunData(records, study.slos_of(workload), samples, price, capacity)


def _status(files: RunFiles, folder: Path) -> RunStatus:
    try:
        status = RunStatus.parse(files.status, folder / "status.json")
    except ServelabError as error:
        raise incomplete(folder, error) from None
    if fault := files.fault():
        raise incomplete(folder, fault)
    return status


def parse_run(study: Study, spec: RunSpec, status: RunStatus, data: RunData) -> Figures:
    """The figures of a run that went well."""
    summary, rounds = summarise(data, CLIENTS.get(study.client).definitions), summarise_rounds(data)
    values: dict[str, dict[int, float]] = {}
    for entry in rounds:
        values.setdefault(entry["metric"], {})[entry["round"]] = entry["value"]
    found = None if spec.capacity is None else find_capacity(spec.capacity, status.steps)
    if found is not None:
        spec = spec.at(status.steps[found.step].load)
    limit = limit_of_run(spec, status, data)
    evidence = Evidence(
        records=data.requests,
        spec=spec,
        server_starts=status.server_starts,
        summary={entry["metric"]: entry for entry in summary},
        rounds=values,
        client=status.client_rounds,
        telemetry=data.samples,
        limit=limit,
        loads_sent=len(status.steps),
    )
    return {
        "metrics": summary,
        "rounds": rounds,
        "checks": check_run(evidence),
        "timeline": timeline(data.requests),
        "limits": count_beyond(data, study.objective.constraints),
        "physical_limit": [limit.columns],
    }
