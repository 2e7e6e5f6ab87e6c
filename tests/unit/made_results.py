"""Results as the workflow leaves them, made from runs on a known schedule: folders of runs, and finished studies."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import made_run
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from made_run import ROUNDS, records, telemetry
from made_study import ROOT, demo_study

from servelab.core.identity import run_id
from servelab.core.run_spec import RunSpec
from servelab.metrics.tables import schemas
from servelab.metrics.tables.io import write_table
from servelab.results.parse import parse_plan
from servelab.search.candidates_table import describe
from servelab.search.planning import plan_confirm, plan_stage
from servelab.search.project import load_project
from servelab.search.recommended import Improvement, Recommended
from servelab.search.strategies import stage_names
from servelab.study.configuration import Incumbent, baseline
from servelab.study.plan import Plan
from servelab.study.project import Project
from servelab.study.study import AFTER_SEARCH

CRASHED = {"outcome": "failed", "reason": "crashed", "message": "Segmentation fault", "rounds": 0, "success_rate": 0.0}
TIMES = ("scheduled_s", "started_s", "sent_s", "first_token_s", "last_token_s", "end_s")


def write_run(
    runs: Path,
    spec: RunSpec,
    pace: float = 1.0,
    day: int = 1,
    kernel: str = "6.1",
    seed: int = 0,
    answers: list[dict[str, Any]] | None = None,
    **status: Any,
) -> Path:
    """A complete run, `pace` times as fast; `answers` are of a run that was asked; `status` replaces what went well."""
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
    finished = {
        "run_id": folder.name,
        "job_id": f"job of {spec.start}",
        "finished_at": f"2026-11-{day:02d}T12:00:00+00:00",
    }
    if spec.keeps_answers:
        pq.write_table(pa.Table.from_pylist(answers or [], schema=schemas.RUN_ANSWERS), folder / "answers.parquet")
    spec.write(folder / "spec.json")
    made_run.manifest(spec, {"kernel": kernel}).write(folder / "manifest.json")
    made_run.status(**finished | status).write(folder / "status.json")
    made_run.seal(folder)
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
    start = baseline(project.study)
    titles = {name: project.workloads[name].title for name in project.study.workloads}
    describe(project.study, titles).write(folder / "study.json")
    searched = [name for name in stage_names(project.study) if name not in AFTER_SEARCH]
    plans = [plan_stage(project, stage, start) for stage in searched]
    plans.append(plan_confirm(project, winner or start, 2))
    for plan in plans:
        for candidate in plan.candidates:
            for planned in candidate.measured_runs:
                if not (results / "runs" / planned.run_id).exists():
                    write_run(results / "runs", planned.spec, **run, **(failed or {}).get(candidate.candidate, {}))
        _write_stage(folder / "stages" / plan.stage, project, plan, results / "runs")
    recommended(project, plan).write(folder / "recommended.json")
    return folder


def small_project(folder: Path, change: Callable[[dict[str, Any]], None] | None = None) -> Project:
    """The demo study on one workload, with one stage of one candidate, and a change to its text."""
    stages = [{"name": "sequences", "candidates": [{"options": {"max_num_seqs": 8}}]}]
    content = copy.deepcopy(demo_study() | {"stages": stages, "workloads": ["cpu-sharegpt"]})
    if change:
        change(content)
    file = folder / f"{content['study']}.yaml"
    file.write_text(yaml.safe_dump(content, sort_keys=False))
    return load_project(file, ROOT)


def _write_stage(folder: Path, project: Project, plan: Plan, runs: Path) -> None:
    folder.mkdir(parents=True)
    plan.write(folder / "plan.json")
    for name, table in parse_plan(project.study, plan, runs).items():
        write_table(table, folder / f"{name}.parquet")


def recommended(project: Project, comparison: Plan, change_percent: float = 12.5, **changes: Any) -> Recommended:
    """The plan's last candidate, with that gain on the workload that decides; `changes` replace its keys."""
    first, last = comparison.candidates[0], comparison.candidates[-1]
    on = project.study.objective.on
    metric, basis = project.study.objective.metric_and_basis
    gain = Improvement(
        workload=on,
        title=project.workloads[on].title,
        metric=metric,
        basis=basis,
        baseline_value=100.0,
        value=100.0 + change_percent,
        change_percent=change_percent,
        change_ci95_low_percent=change_percent - 1.5,
        change_ci95_high_percent=change_percent + 1.5,
        n=ROUNDS,
    )
    made = Recommended(
        study=project.study.study,
        command=last.command,
        launch_command=None,
        engine=project.engine(last.configuration.engine).name,
        engine_version=project.study.engines[last.configuration.engine].version,
        model=project.study.model.variant_id(last.configuration.model),
        environment_variables={},
        configuration=last.configuration,
        changed=last is not first,
        objective=metric,
        per=basis,
        improvements=[gain] if last is not first else [],
        validity="ok",
        baseline_validity="ok",
        run_id={run.workload: run.run_id for run in last.runs}[on],
        baseline_run_id=first.runs[0].run_id,
    )
    return made.model_copy(update=changes)
