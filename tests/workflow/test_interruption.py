"""However the workflow is ended while it measures, no process is left, nothing half-done stays, and it can go on."""

import os
import shutil
import signal

import psutil
import pytest
from patience import until

pytestmark = pytest.mark.slow


def below(process):
    """The processes below a process, by their command line."""
    tree = {}
    for child in process.children(recursive=True):
        try:
            tree[child] = " ".join(child.cmdline())
        except psutil.Error:
            continue
    return tree


@pytest.fixture
def long_workspace(workspace):
    """The study with one run to measure that takes long enough to be interrupted."""
    study = workspace.study()
    study["stages"][1]["candidates"].append({"options": {"max_num_seqs": 1}})
    study["protocol"]["rounds"] = 8
    workspace.write_study(study)
    return workspace


@pytest.mark.parametrize(
    "ending", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL], ids=lambda ending: ending.name
)
def test_ended_workflow_leaves_nothing_and_goes_on(ending, long_workspace):
    workspace = long_workspace
    before = workspace.runs()
    log = workspace.folder / "interrupted.log"
    snakemake = workspace.begin(log)
    tree = {}
    try:

        def serving():
            assert snakemake.poll() is None, log.read_text()[-3000:]
            found = below(snakemake)
            return found if any("servelab.measure.load" in line for line in found.values()) else None

        tree = until(serving, "a server under load", 120)
        assert any("llama_cpp_server.py" in line for line in tree.values())
        if ending == signal.SIGINT:
            os.killpg(snakemake.pid, ending)  # as a terminal does on Ctrl-C
        else:
            snakemake.send_signal(ending)
        until(lambda: snakemake.poll() is not None, "the end of snakemake", 120)
        alive = lambda: [process for process in tree if process.is_running() and process.status() != "zombie"]  # noqa: E731
        until(lambda: not alive(), f"the end of {list(tree.values())}")
    finally:
        for process in [snakemake, *tree]:
            if process.is_running():
                process.kill()
    interrupted = set(workspace.runs()) - set(before)
    leftovers = [path for path in (workspace.folder / "results/runs").iterdir() if path.name not in workspace.runs()]
    assert [path for path in leftovers if any(path.iterdir())] == []
    if ending == signal.SIGKILL:
        workspace.snakemake("--unlock")
    study = workspace.study()
    study["protocol"]["rounds"] = 1
    workspace.write_study(study)
    measured = workspace.measured_by()
    assert [workspace.json(f"results/runs/{run}/spec.json")["options"] for run in measured] == [
        {"threads": 1, "max_num_seqs": 1}
    ]
    assert not measured & interrupted
    shutil.rmtree(workspace.folder)


def test_a_job_that_is_ended_when_its_run_is_complete_loses_nothing(workspace):
    study = workspace.study()
    study["stages"][1]["candidates"].append({"options": {"max_num_seqs": 1}})
    workspace.write_study(study)
    before = set(workspace.runs())
    runs = "run_rule(globals(), without_pandas=True)"
    ended = f"import atexit, os\natexit.register(os._exit, 75)\n{runs}"  # as by a signal before it says its end
    workspace.edit("scripts/measure.py", runs, ended)
    assert "FAILED: measure" in workspace.snakemake(check=False)
    assert len(set(workspace.runs()) - before) == 1
    workspace.edit("scripts/measure.py", ended, runs)
    decision = "results/studies/tiny/stages/sequences/decision.json"
    assert workspace.measured_by(decision) == set()
    verdicts = {each["candidate"]: each["verdict"] for each in workspace.json(decision)["candidates"]}
    assert verdicts["max_num_seqs=1"] not in ("failed", "invalid")
