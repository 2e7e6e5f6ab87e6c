"""What a dry-run says of each run that is planned."""

import re
import tempfile

import pytest
from workspace import Workspace, tiny_study

pytestmark = pytest.mark.slow

PLAN = "results/studies/tiny/stages/engine/plan.json"
JOB = re.compile(r"^rule measure:\n(?P<said>(?: {4}.*\n)+)", re.MULTILINE)


def test_a_run_takes_the_accelerators_and_the_settings_of_its_candidate(tmp_path):
    workspace = Workspace.create(tmp_path / "workspace")
    study = tiny_study()
    study["hardware"] |= {"per_node": 2}
    study["baseline"] |= {"accelerators": 1}
    study["stages"] = [
        {"name": "engine", "candidates": [{"engine": "old", "options": {"max_num_seqs": 2}, "accelerators": 2}]}
    ]
    workspace.write_study(study)
    workspace.snakemake("--quiet", "all", "--", PLAN)
    plan = workspace.json(PLAN)
    specs = {run["run_id"]: run["spec"] for each in plan["candidates"] for run in each["runs"]}
    said = workspace.snakemake("--dry-run", "--printshellcmds")
    jobs = {re.search(r"run_id=(\w+)", job["said"])[1]: job["said"] for job in JOB.finditer(said)}
    assert jobs.keys() == specs.keys() and len(jobs) == 3  # the baseline has two server starts
    assert {spec["hardware"]["count"] for spec in specs.values()} == {1, 2}
    for run_id, spec in specs.items():
        assert f"accelerators={spec['hardware']['count']}" in jobs[run_id]
        lock = spec["engine"]["environment_sha256"][:12]
        command = next(
            line for line in said.splitlines() if f"results/logs/measure/{run_id}.log" in line and "job=" in line
        )
        assert f'"environment":"results/envs/llama.cpp-{lock}/environment.json"' in command
        assert ('"max_num_seqs":2' in command) == ("max_num_seqs" in spec["options"])

    mine = ("--dry-run", "--set-resources", "measure:slurm_partition=mine", "--config", "site=example")
    asked = [job["said"] for job in JOB.finditer(workspace.snakemake(*mine))]
    assert len(asked) == 3 and all("slurm_partition=mine" in job for job in asked)


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    """A study of arguments whose first stage is planned."""
    workspace = Workspace.create(tmp_path_factory.mktemp("planned") / "workspace")
    study = tiny_study()
    study["baseline"] |= {"arguments": {"--zeta": 1, "--alpha": 2}}
    study["stages"] = [{"name": "engine", "candidates": [{"arguments": {"--beta": 3}}]}]
    workspace.write_study(study)
    workspace.snakemake("--quiet", "all", "--", PLAN)
    return workspace


def test_arguments_keep_their_order_and_temporary_files_their_folder(planned):
    workspace = planned
    said = workspace.snakemake("--dry-run", "--printshellcmds")
    assert '"arguments":{"--zeta":1,"--alpha":2}' in said
    assert '"arguments":{"--zeta":1,"--alpha":2,"--beta":3}' in said
    jobs = [job["said"] for job in JOB.finditer(said)]
    assert jobs and all(f"tmpdir={tempfile.gettempdir()}," in job for job in jobs)
    for option, value in (("--default-resources", "tmpdir='/a'"), ("--set-resources", "measure:tmpdir='/a'")):
        jobs = [job["said"] for job in JOB.finditer(workspace.snakemake("--dry-run", option, value))]
        assert jobs and all("tmpdir=/a," in job for job in jobs)


def test_a_plan_that_an_older_version_left_is_in_nobodys_way(planned, tmp_path):
    workspace = planned.copy(tmp_path / "copy")
    left = workspace.folder / "results/studies/left/stages/engine/plan.json"
    left.parent.mkdir(parents=True)
    left.write_text('{"candidates": [{"runs": [{"run_id": "0", "spec": {"of": "an older version"}}]}]}')
    run_id = workspace.json(PLAN)["candidates"][0]["runs"][0]["run_id"]
    # a run asked for by its name, as a job on a node does, is looked for in all plans
    said = workspace.snakemake("--dry-run", "--", f"results/runs/{run_id}/manifest.json")
    assert JOB.search(said)
