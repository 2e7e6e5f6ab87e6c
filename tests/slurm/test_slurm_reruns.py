"""What must rerun on a cluster is what must rerun on one machine: rows of the table of docs/usage.md."""

import shutil

import pytest
from workflow.workspace import OLD

pytestmark = pytest.mark.slurm


def test_nothing_changed_measures_nothing(workspace):
    assert workspace.measured_by() == set()


def test_add_a_candidate_measures_one(workspace):
    study = workspace.study("npus")
    study["stages"][0]["candidates"].append({"options": {"max_num_seqs": 2}})
    workspace.write_study(study)
    added = workspace.measured_by()
    assert [workspace.spec(run)["options"] for run in added] == [{"threads": 1, "max_num_seqs": 2}]


def test_bump_an_engines_version_measures_exactly_that_engines_runs_and_back_none(workspace):
    before = workspace.runs()
    study = workspace.study("npus")
    released = study["engines"]["llama.cpp"]
    study["engines"]["llama.cpp"] = {"version": OLD, "lock": f"envs/llama.cpp-{OLD}.lock.txt"}
    workspace.write_study(study)
    bumped = workspace.measured_by()
    specs = [workspace.spec(run) for run in bumped]
    assert {(spec["engine"]["version"], spec["hardware"]["device"]) for spec in specs} == {(OLD, "ascend")}
    assert len(bumped) == 2
    assert set(before) < set(workspace.runs())
    workspace.write_study(study | {"engines": {"llama.cpp": released}})
    assert workspace.measured_by() == set()


def test_another_site_measures_nothing(workspace):
    workspace.edit("config/sites/loopback.yaml", "memory_gb: 8", "memory_gb: 9")
    assert workspace.measured_by() == set()


def test_lost_records_of_snakemake_measure_nothing(workspace):
    shutil.rmtree(workspace.folder / ".snakemake")
    assert workspace.measured_by() == set()
