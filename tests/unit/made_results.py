"""Results as the workflow leaves them, made from runs on a known schedule: folders of runs, and finished studies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from made_run import ROUNDS, records, telemetry

from servelab import schemas
from servelab.clients import LoadStats
from servelab.describe import describe
from servelab.identity import run_id
from servelab.parse import parse_plan, write_table
from servelab.plan import Incumbent, Plan, baseline, plan_stage
from servelab.project import Project
from servelab.spec import RunSpec

TIMES = ("scheduled_s", "started_s", "sent_s", "first_token_s", "last_token_s", "end_s")
STATS = [LoadStats(wall_s=4.0, cpu_s=0.2, unread_p99_ms=0.4).model_dump(mode="json")] * ROUNDS


def write_run(
    runs: Path, spec: RunSpec, pace: float = 1.0, day: int = 1, kernel: str = "6.1", seed: int = 0, **status: Any
) -> Path:
    """A complete run, `pace` times as fast; `status` replaces what went well."""
    folder = runs / run_id(spec)
    folder.mkdir(parents=True)
    rows = [] if status else records(spec.protocol, seed)
    for row in rows:
        row |= {name: row[name] / pace for name in TIMES}
        row["chunk_gaps_ms"] = [gap / pace for gap in row["chunk_gaps_ms"]]
    pq.write_table(pa.Table.from_pylist(rows, schema=schemas.RUN_REQUESTS), folder / "requests.parquet")
    if rows:
        samples = pa.Table.from_pandas(telemetry(rows), schema=schemas.TELEMETRY, preserve_index=False)
        pq.write_table(samples, folder / "telemetry.parquet")
    ok = {"outcome": "ok", "reason": None, "message": None, "rounds": ROUNDS, "success_rate": 1.0}
    more = {"server_starts": 1, "client_rounds": STATS, "accelerator_s": 30.0, "load_s": 20.0}
    finished = {"finished_at": f"2026-11-{day:02d}T12:00:00+00:00"}
    machine = {"cpu": "a cpu", "cpus_usable": 2, "kernel": kernel}
    (folder / "status.json").write_text(json.dumps(ok | more | finished | status))
    (folder / "spec.json").write_text(spec.model_dump_json())
    (folder / "manifest.json").write_text(
        json.dumps({"devices": [{"name": "a cpu", "driver": None}], "machine": machine})
    )
    return folder


def write_study(
    results: Path,
    project: Project,
    winner: Incumbent | None = None,
    failed: dict[str, dict[str, Any]] | None = None,
    **run: Any,
) -> Path:
    """A finished study below `results`, as far as a comparison and an index read it; returns its folder.

    `run` is what `write_run` takes; candidates named in `failed` have that status. Runs that are there are kept.
    """
    folder = results / "studies" / project.study.study
    folder.mkdir(parents=True)
    start = baseline(project)
    titles = {name: project.workloads[name].title for name in project.study.workloads}
    (folder / "study.json").write_text(json.dumps(describe(project.study, titles)))
    for stage in project.stage_names:
        plan = plan_stage(project, stage, (winner or start) if stage == project.stage_names[-1] else start)
        for candidate in plan.candidates:
            for planned in candidate.runs:
                if not (results / "runs" / planned.run_id).exists():
                    write_run(results / "runs", planned.spec, **run, **(failed or {}).get(candidate.candidate, {}))
        _write_stage(folder / "stages" / stage, project, plan, results / "runs")
    (folder / "recommended.json").write_text(json.dumps(_recommended(project, plan)))
    return folder


def _write_stage(folder: Path, project: Project, plan: Plan, runs: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "plan.json").write_text(plan.model_dump_json())
    for name, table in parse_plan(project.study, plan, runs).items():
        write_table(table, folder / f"{name}.parquet")


def _recommended(project: Project, comparison: Plan) -> dict[str, Any]:
    last = comparison.candidates[-1]
    on = project.study.objective.on
    title = project.workloads[on].title
    gain = {
        "workload": on,
        "title": title,
        "extrapolated": False,
        "change_percent": 12.5,
        "change_ci95_low_percent": 11.0,
        "change_ci95_high_percent": 14.0,
        "n": ROUNDS,
        "failed": None,
    }
    run_of = {run.workload: run.run_id for run in last.runs}
    return {
        "study": project.study.study,
        "command": last.command,
        "launch_command": None,
        "note": None,
        "engine": project.engine(last.configuration.engine).name,
        "engine_version": project.study.engines[last.configuration.engine].version,
        "model": project.study.model.variant_id(last.configuration.model),
        "changed": len(comparison.candidates) > 1,
        "objective": project.study.objective.metric,
        "per": project.study.objective.metric_and_basis[1],
        "improvements": [gain] if len(comparison.candidates) > 1 else [],
        "validity": "ok",
        "baseline_validity": "ok",
        "run_id": run_of[on],
        "baseline_run_id": comparison.candidates[0].runs[0].run_id,
    }
