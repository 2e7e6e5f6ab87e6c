"""What the workflow costs beside its measurements, at 1,000 candidates, and a bare workflow beside it.

The study is planned, parsed, decided and reported by the project itself, in a copy of it whose `scripts/measure.py` is
`made_measure.py`: it makes a run's folder at once, without a server.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import time
from dataclasses import astuple, dataclass
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from harness import HERE, ROOT, publish, undisturbed
from process_cost import process_cost

from servelab.core.identity import content_id, workload_id
from servelab.core.run_spec import WorkloadSpec
from servelab.measure.clients import LoadStats
from servelab.metrics.tables import schemas

sys.path += [str(ROOT / "tests/workflow"), str(ROOT / "tests/unit")]
import made_run
from workspace import Workspace, tiny_study

REPEATS = 3
MOST_OF_BARE = {"dry-run": 2.5, "no-op": 2.5, "first run": 2.5}
"""The most that ours may take of the bare workflow's CPU time, which a busy machine disturbs less than wall time."""
ROUNDS, REQUESTS = 2, 4

BARE = """
import json
from pathlib import Path

NUMBERS = {run: number for number, run in enumerate(json.loads(Path("runs.json").read_text()))}

rule all:
    input: "summary.txt"

checkpoint plan:
    output: "plan.json"
    shell: "cp runs.json {output}"

rule measure:
    output: "runs/{run}/status.json"
    threads: workflow.cores
    params: job=lambda wildcards: json.dumps({"visits": [[{"spec": NUMBERS[wildcards.run]}]]})
    shell: "python scripts/measure.py job={params.job:q} runs=runs"

def runs(wildcards):
    plan = checkpoints.plan.get().output[0]
    return [f"runs/{run}/status.json" for run in json.loads(Path(plan).read_text())]

rule summary:
    input: runs
    output: "summary.txt"
    shell: "touch {output}"
"""
"""Three rules and as many jobs: a plan, the same program for each run, and a summary that needs them all."""


@dataclass(frozen=True)
class Cost:
    """Of one `snakemake`."""

    wall_s: float
    cpu_s: float
    """Of all its processes, jobs included."""
    peak_mb: float
    """Most memory of Snakemake's own process."""


class Ours(Workspace):
    """The project with a study of so many candidates in one stage, planned, and its requests prepared."""

    @classmethod
    def of(cls, folder: Path, candidates: int) -> Ours:
        cls.create(folder)
        workspace = cls(folder)
        workspace.write_candidates(candidates)
        workspace.write("config/config.yaml", "studies: [scale]\n")
        install_made_measure(folder)
        workspace.snakemake("--quiet", "all", "--", "results/studies/scale/stages/many/plan.json")
        spec = next(iter(workspace.runs_planned().values()))
        requests = workload_id(WorkloadSpec.model_validate(spec["workload"]))
        workspace.snakemake("--quiet", "all", "--", f"results/workloads/{requests}/requests.parquet")
        return workspace

    def write_candidates(self, candidates: int) -> None:
        """Writes the study with so many runs: the baseline has two, the others one."""
        many = [{"arguments": {"--seed": number}} for number in range(candidates - 2)]
        self.write_study(
            tiny_study("scale") | {"stages": [{"name": "many", "candidates": many}], "workloads": ["tiny"]}
        )

    def runs_planned(self) -> dict[str, dict]:
        """Specification of each run by its id."""
        plan = self.json("results/studies/scale/stages/many/plan.json")
        return {run["run_id"]: run["spec"] for candidate in plan["candidates"] for run in candidate["runs"]}


class Bare(Workspace):
    """The three rules, planned."""

    @classmethod
    def of(cls, folder: Path, candidates: int) -> Bare:
        folder.mkdir(parents=True)
        workspace = cls(folder)
        workspace.write("Snakefile", BARE)
        workspace.write("runs.json", json.dumps([content_id(number) for number in range(candidates)]))
        install_made_measure(folder)
        shutil.copytree(ROOT / "profiles", folder / "profiles")
        workspace.snakemake("--quiet", "all", "--", "plan.json")
        return workspace


def install_made_measure(folder: Path) -> None:
    """Puts the stand-in and the files that it copies into a workspace's `scripts/`."""
    made = folder / "scripts/made_run"
    made.mkdir(parents=True)
    shutil.copy2(HERE / "made_measure.py", folder / "scripts/measure.py")
    rows = [
        {
            "round": number,
            "request_index": index,
            "phase": "measured",
            "scheduled_s": 0.0,
            "started_s": 0.0,
            "sent_s": 0.001,
            "first_token_s": 0.1 + 0.001 * number,
            "last_token_s": 0.4,
            "end_s": 0.401,
            "input_tokens_asked": 16,
            "input_tokens": 16,
            "output_tokens_asked": 4,
            "output_tokens": 4,
            "chunks": 4,
            "chunk_gaps_ms": [100.0, 100.0, 100.0],
            "unread_ms": 0.1,
            "finish_reason": "length",
            "http_status": 200,
        }
        for number in range(ROUNDS)
        for index in range(REQUESTS)
    ]
    pq.write_table(pa.Table.from_pylist(rows, schema=schemas.RUN_REQUESTS), made / "requests.parquet")
    pq.write_table(schemas.TELEMETRY.empty_table(), made / "telemetry.parquet")
    status = made_run.status(
        rounds=ROUNDS,
        requests=ROUNDS * REQUESTS,
        objective_rounds=[200.0] * ROUNDS,
        client_rounds=[LoadStats(wall_s=1.0, cpu_s=0.1, origin_monotonic_s=0.0)] * ROUNDS,
        load_s=0.8,
        accelerator_s=1.0,
    )
    status.write(made / "status.json")
    made_run.manifest(made_run.spec()).write(made / "manifest.json")


def cost(workspace: Workspace, *arguments: str) -> Cost:
    """What a `snakemake` costs, which must end well."""
    log = workspace.folder / "snakemake.log"
    with log.open("w") as said:
        started = time.monotonic()
        took = process_cost(
            workspace.command(*arguments),
            limit_s=3600,
            cwd=workspace.folder,
            env=workspace.environment(),
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
        )
        wall_s = time.monotonic() - started
    assert took.returncode == 0, log.read_text()[-3000:]
    return Cost(wall_s, took.cpu_s, took.peak_rss_mb)


def medians(workspaces: dict[str, Workspace], *arguments: str, repeats: int = REPEATS) -> dict[str, Cost]:
    """The median cost of each workspace's `snakemake`; they take turns."""
    costs: dict[str, list[Cost]] = {name: [] for name in workspaces}
    for _ in range(repeats):
        with undisturbed():
            for name, workspace in workspaces.items():
                costs[name].append(cost(workspace, *arguments))
    return {
        name: Cost(*(statistics.median(values) for values in zip(*map(astuple, own), strict=True)))
        for name, own in costs.items()
    }


def rows(what: str, costs: dict[str, Cost]) -> list[dict[str, object]]:
    return [
        {
            "what": what,
            "workflow": name,
            "wall (s)": own.wall_s,
            "CPU (s)": own.cpu_s,
            "of bare": own.cpu_s / costs["bare"].cpu_s if "bare" in costs else None,
            "memory (MB)": own.peak_mb,
        }
        for name, own in costs.items()
    ]


@pytest.mark.bench
def test_a_thousand_candidates_beside_a_bare_workflow(tmp_path):
    workspaces = {"ours": Ours.of(tmp_path / "ours", 1000), "bare": Bare.of(tmp_path / "bare", 1000)}
    found = {
        "dry-run": medians(workspaces, "--dry-run", "--quiet", "all"),
        "first run": medians(workspaces, repeats=1),
        "no-op": medians(workspaces),
    }
    ours = workspaces["ours"]
    assert len(ours.runs()) == 1000
    ours.write_candidates(1001)
    found["one candidate more"] = {"ours": cost(ours)}
    log = ours.folder / "results/logs/parse_stage/scale-many.log"
    assert log.read_text().startswith("1 of 1,001 runs parsed")
    table = [row for what, costs in found.items() for row in rows(what, costs)]
    publish("scale-1000", "1,000 candidates", {"Median of 3, the first run once": pd.DataFrame(table)})
    for what, most in MOST_OF_BARE.items():
        assert found[what]["ours"].cpu_s <= most * found[what]["bare"].cpu_s
