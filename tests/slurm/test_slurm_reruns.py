"""What must rerun on a cluster is what must rerun on one machine: every row of the table of docs/studies.md.

The rows that measure nothing are changed together here: tests/workflow/test_reruns.py has each by itself.
"""

import shutil

import pytest
from slurm.conftest import H100, SlurmWorkspace
from workflow.workspace import OLD

pytestmark = pytest.mark.slurm


def test_what_cannot_change_a_measurement_measures_nothing(workspace):
    """Order, comments, titles, labels, the margin; charts, parser, report, client; touched files; the site; a study."""
    study = dict(reversed(workspace.study("npus").items()))
    study["stages"][0]["candidates"][0]["label"] = "all of the node"
    study["objective"]["margin_percent"] = 900
    workspace.choose([study | {"title": "Another title"}, workspace.study("gpus"), study | {"study": "other"}])
    workspace.edit("config/studies/npus.yaml", "study: npus", "# a comment\nstudy: npus")
    for name in (
        "report/charts/tried.py",
        "results/parse.py",
        "report/render.py",
        "measure/visits.py",
        "measure/load/sender.py",
    ):
        file = workspace.folder / "scripts/servelab" / name
        file.write_text(file.read_text() + "\n# a change\n")
    workspace.edit("config/sites/loopback.yaml", "memory_gb: 8", "memory_gb: 9")
    workspace.touch_results()
    assert workspace.measured_by() == set()
    assert (workspace.folder / "results/studies/other/report.html").exists()


def test_a_fresh_checkout_without_snakemakes_records_measures_nothing(finished, tmp_path):
    studies = [finished.study(name) for name in ("gpus", "npus")]
    checkout = SlurmWorkspace.on(finished.cluster, tmp_path / "checkout", studies)
    for name in ("runs", "studies", "workloads"):
        shutil.copytree(finished.folder / "results" / name, checkout.folder / "results" / name)
    assert checkout.measured_by() == set()


def test_an_added_a_changed_and_a_lost_candidate_are_measured_and_no_other(workspace):
    study = workspace.study("gpus")
    workspace.choose([study])
    candidates = study["stages"][0]["candidates"]
    specs = {run: workspace.spec(run) for run in workspace.runs()}
    (lost,) = [
        run
        for run, spec in specs.items()
        if spec["hardware"]["accelerator"] == H100 and spec["options"].get("max_num_seqs") == 1
    ]
    shutil.rmtree(workspace.folder / "results/runs" / lost)
    candidates[1]["options"] = {"max_num_seqs": 5}
    candidates.append({"options": {"max_num_seqs": 4}})
    workspace.write_study(study)
    measured = workspace.measured_by()
    assert sorted(workspace.spec(run)["options"]["max_num_seqs"] for run in measured) == [1, 4, 5]
    assert lost in measured


def test_raising_an_engines_version_measures_exactly_its_runs_and_back_none(workspace):
    before = workspace.runs()
    study = workspace.study("npus")
    workspace.choose([study])
    released = study["engines"]["llama.cpp"]
    study["engines"]["llama.cpp"] = {"version": OLD, "lock": f"envs/llama.cpp-{OLD}.lock.txt"}
    workspace.write_study(study)
    raised = workspace.measured_by()
    specs = [workspace.spec(run) for run in raised]
    assert {(spec["engine"]["version"], spec["hardware"]["device"]) for spec in specs} == {(OLD, "ascend")}
    assert len(raised) == 2
    assert set(before) < set(workspace.runs())
    workspace.write_study(study | {"engines": {"llama.cpp": released}})
    assert workspace.measured_by() == set()
