"""The live studies of the published models, as far as they go without a network and without an accelerator."""

import re
import shutil

import pytest
import yaml
from workspace import ROOT, Workspace

from servelab.search.planning import plan_stage
from servelab.search.project import load_project
from servelab.search.strategies import stage_names
from servelab.study.configuration import baseline

STUDIES = ["qwen3-235b-a22b-h100", "qwen3-32b-h100", "qwen3-14b-h100", "qwen3.5-9b-h100", "qwen3-30b-a3b-910b"]


@pytest.fixture(scope="module")
def dry_run(tmp_path_factory):
    """A real dry run of all of them, in a copy of the project without results."""
    workspace = Workspace.create(tmp_path_factory.mktemp("live") / "project")
    shutil.copy2(ROOT / "config/workloads.yaml", workspace.folder / "config/workloads.yaml")
    workspace.write("config/config.yaml", yaml.safe_dump({"studies": STUDIES}))
    return workspace.snakemake("--dry-run")


@pytest.mark.parametrize("study", STUDIES)
def test_dry_run_lists_the_first_stage_and_the_most_accelerator_hours(dry_run, study):
    project = load_project(ROOT / f"config/studies/{study}.yaml", ROOT)
    plan = plan_stage(project, stage_names(project.study)[0], baseline(project.study))
    (line,) = [line for line in dry_run.splitlines() if line.startswith(f"{study}: ")]
    assert re.search(r" runs on \d+ server starts left to measure \(0 measured\), .*at most ", line)
    assert line.endswith("accelerator-hours")
    for candidate in plan.candidates:
        assert f"    {candidate.candidate}: {candidate.command}\n" in dry_run
    assert f"results/studies/{study}/stages/{plan.stage}/plan.json" in dry_run
