"""CPU time of a dry run of the workflow with 1,000 candidates, beside a bare workflow of as many jobs."""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path

import pandas as pd
import pytest
from harness import ROOT, publish, undisturbed
from process_cost import process_cost

from servelab.core.identity import content_id

sys.path.append(str(ROOT / "tests/workflow"))
from workspace import Workspace, tiny_study

CANDIDATES, REPEATS = 1000, 3
MOST_OF_BARE = 2.5
"""The most that ours may take of the bare workflow's CPU time, which a busy machine disturbs less than wall time."""

BARE = """
import json
from pathlib import Path

RUNS = json.loads(Path("runs.json").read_text())

rule all:
    input: expand("runs/{run}/status.json", run=RUNS)

rule measure:
    output: "runs/{run}/status.json"
    shell: "touch {output}"
"""


def ours(folder: Path) -> Workspace:
    """The project with a study of so many candidates in one stage, planned."""
    workspace = Workspace.create(folder)
    many = [{"arguments": {"--seed": number}} for number in range(CANDIDATES - 2)]
    stages = [{"name": "many", "candidates": many}]
    workspace.write_study(tiny_study("scale") | {"stages": stages, "workloads": ["tiny"]})
    workspace.write("config/config.yaml", "studies: [scale]\n")
    workspace.snakemake("--quiet", "all", "--", "results/studies/scale/stages/many/plan.json")
    return workspace


def bare(folder: Path) -> Workspace:
    """Two rules and as many jobs."""
    folder.mkdir()
    workspace = Workspace(folder)
    workspace.write("Snakefile", BARE)
    workspace.write("runs.json", json.dumps([content_id(number) for number in range(CANDIDATES)]))
    workspace.write("profiles/default/config.yaml", (ROOT / "profiles/default/config.yaml").read_text())
    return workspace


@pytest.mark.bench
def test_a_dry_run_of_a_thousand_candidates_beside_a_bare_workflow(tmp_path):
    costs: dict[str, list[float]] = {}
    workspaces = {"ours": ours(tmp_path / "ours"), "bare": bare(tmp_path / "bare")}
    for _ in range(REPEATS):
        with undisturbed():
            for name, workspace in workspaces.items():
                command = workspace.command("--dry-run", "--quiet", "all")
                took = process_cost(command, cwd=workspace.folder, env=workspace.environment())
                assert took.returncode == 0
                costs.setdefault(name, []).append(took.cpu_s)
    found = {name: statistics.median(values) for name, values in costs.items()}
    publish("scale-1000", "Dry run of 1,000 candidates", {"CPU time (s), median of 3": pd.DataFrame([found])})
    assert found["ours"] <= MOST_OF_BARE * found["bare"]
