"""Parses the raw records of a plan's runs into tables: metrics of each run, its checks, and a row a candidate."""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from servelab import schemas
from servelab.clients import CLIENTS, LoadStats
from servelab.errors import ServelabError
from servelab.files import replacing
from servelab.metrics import RunData, summarise, summarise_rounds
from servelab.objective import missed_constraints, per_basis
from servelab.plan import Plan, PlannedCandidate, PlannedRun
from servelab.spec import RunSpec
from servelab.study import Study
from servelab.timeline import timeline
from servelab.validity import Evidence, check_run, verdict

TABLES = {
    "table": schemas.STAGE_TABLE,
    "metrics": schemas.METRICS,
    "rounds": schemas.ROUNDS,
    "checks": schemas.CHECKS,
    "timeline": schemas.TIMELINE,
}
"""What a stage is parsed into: name of the table → its schema."""

Rows = list[dict[str, Any]]

_RUNS_A_PROCESS = 100
"""With fewer a process takes longer to start than it saves."""

HEADLINE = {
    "output_tokens_per_s": ("output_tokens_per_s", "mean"),
    "requests_per_s": ("requests_per_s", "mean"),
    "total_tokens_per_s": ("total_tokens_per_s", "mean"),
    "total_tokens_per_s_ci95_low": ("total_tokens_per_s", "ci95_low"),
    "total_tokens_per_s_ci95_high": ("total_tokens_per_s", "ci95_high"),
    "ttft_ms_mean": ("ttft_ms", "mean"),
    "ttft_ms_p99": ("ttft_ms", "p99"),
    "tpot_ms_mean": ("tpot_ms", "mean"),
    "tpot_ms_p99": ("tpot_ms", "p99"),
    "itl_ms_mean": ("itl_ms", "mean"),
    "e2el_ms_mean": ("e2el_ms", "mean"),
    "slo_attainment": ("slo_attainment", "mean"),
}
"""Column of the stage table → metric and statistic it repeats."""


def parse_plan(study: Study, plan: Plan, runs_folder: Path, processes: int = 1) -> dict[str, pa.Table]:
    """The `TABLES` of a plan whose runs are all measured; of many runs in so many `processes`.

    A broken or missing run folder is a `ServelabError` that names it.
    """
    rows: dict[str, Rows] = {name: [] for name in TABLES}
    measured = _read_and_parse_all(study, plan, runs_folder, processes)
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
            refusal = {"workload": study.objective.on, "outcome": "failed", "reason": "refused", "rounds": 0}
            rows["table"].append({**row, **refusal, "message": candidate.refused})
        if candidate.not_run is not None:
            left_out = {"workload": study.objective.on, "outcome": "not run", "reason": "budget", "rounds": 0}
            rows["table"].append({**row, **left_out, "message": candidate.not_run})
        for run in candidate.runs:
            status, parsed = next(measured)
            names = {"study": plan.study, "run_id": run.run_id, "workload": run.workload}
            for name, found in parsed.items():
                rows[name] += [{**names, **entry} for entry in found]
            rows["table"].append({**row, **_run_columns(study, candidate, run, status, parsed)})
    return {name: pa.Table.from_pylist(rows[name], schema=schema) for name, schema in TABLES.items()}


def _read_and_parse_all(
    study: Study, plan: Plan, runs_folder: Path, processes: int
) -> Iterator[tuple[dict[str, Any], dict[str, Rows]]]:
    """Status and rows of a plan's runs, in order."""
    runs = [run for candidate in plan.candidates for run in candidate.runs]
    read = partial(_read_and_parse, study, runs_folder)
    processes = min(processes, len(runs) // _RUNS_A_PROCESS)
    if processes < 2:
        yield from map(read, runs)
        return
    # not forked: the threads of pyarrow would be missing
    with ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(read, runs, chunksize=_RUNS_A_PROCESS)


def _read_and_parse(study: Study, runs_folder: Path, run: PlannedRun) -> tuple[dict[str, Any], dict[str, Rows]]:
    status, data = read_run(study, runs_folder / run.run_id)
    return status, parse_run(study, run.spec, status, data) if status["outcome"] == "ok" else {}


def read_run(study: Study, folder: Path) -> tuple[dict[str, Any], RunData]:
    """Status and records of the run in a folder; `ServelabError` if it is not complete."""
    telemetry = folder / "telemetry.parquet"
    price = study.hardware.price_per_accelerator_hour
    try:
        status = json.loads((folder / "status.json").read_text(encoding="utf-8"))
        records = pq.read_table(folder / "requests.parquet", schema=schemas.RUN_REQUESTS)
        samples = pq.read_table(telemetry, schema=schemas.TELEMETRY) if telemetry.exists() else None
        if price is not None:
            price *= json.loads((folder / "spec.json").read_text(encoding="utf-8"))["hardware"]["count"]
    except (OSError, ValueError, LookupError, pa.ArrowException) as error:
        raise ServelabError(f"{folder}: not a complete run ({error}); remove the folder and run again") from None
    return status, RunData(records, study.objective.slos, samples, price)


def parse_run(study: Study, spec: RunSpec, status: dict[str, Any], data: RunData) -> dict[str, Rows]:
    """Rows of a run's tables (`TABLES` but for the stage's own) without study, run_id and workload."""
    summary, rounds = summarise(data, CLIENTS.get(study.client).definitions), summarise_rounds(data)
    values: dict[str, dict[int, float]] = {}
    for entry in rounds:
        values.setdefault(entry["metric"], {})[entry["round"]] = entry["value"]
    evidence = Evidence(
        records=data.records.to_pandas(),
        spec=spec,
        status=status,
        summary={entry["metric"]: entry for entry in summary},
        rounds=values,
        client=[LoadStats.model_validate(stats) for stats in status.get("client_rounds", [])],
        telemetry=(schemas.TELEMETRY.empty_table() if data.telemetry is None else data.telemetry).to_pandas(),
    )
    return {"metrics": summary, "rounds": rounds, "checks": check_run(evidence), "timeline": timeline(data.records)}


def _run_columns(
    study: Study,
    candidate: PlannedCandidate,
    run: PlannedRun,
    status: dict[str, Any],
    parsed: dict[str, Rows],
) -> dict[str, Any]:
    by_metric = {entry["metric"]: entry for entry in parsed.get("metrics", [])}
    columns = {
        name: by_metric[metric][statistic] for name, (metric, statistic) in HEADLINE.items() if metric in by_metric
    }
    objective = by_metric.get(study.objective.metric, {})
    _, basis = study.objective.metric_and_basis
    factor, _ = per_basis(basis, candidate.configuration.accelerators, study.hardware.per_node)
    for name, statistic in (("value", "mean"), ("ci95_low", "ci95_low"), ("ci95_high", "ci95_high")):
        if objective.get(statistic) is not None:
            columns[f"objective_{name}"] = objective[statistic] * factor
    # the constraints are of the workload that decides, and of its parts, which are not among the study's workloads
    if parsed and (run.workload == study.objective.on or run.workload not in study.workloads):
        columns["constraints_missed"] = missed_constraints(study.objective.constraints, by_metric)
    validity, note = verdict(parsed["checks"]) if parsed else (None, None)
    return {
        **columns,
        "workload": run.workload,
        "run_id": run.run_id,
        "outcome": status["outcome"],
        "reason": status["reason"],
        "message": status["message"],
        "validity": validity,
        "validity_note": note,
        "rounds": status["rounds"],
        "success_rate": status["success_rate"],
        "accelerator_s": status["accelerator_s"],
        "load_accelerator_s": status["load_s"] * candidate.configuration.accelerators,
    }


def read_table(path: Path, schema: pa.Schema) -> pd.DataFrame:
    """A table written by this workflow, with its schema checked."""
    frame: pd.DataFrame = pq.read_table(path, schema=schema).to_pandas()
    return frame


def write_table(table: pa.Table, path: Path) -> None:
    """Writes Parquet, whole or not at all."""
    with replacing(path) as temporary:
        pq.write_table(table, temporary)
