"""A winner is proved in pairs of server starts, each pair one job, and only what is missing of a pair is measured."""

import shutil

import pytest
from workspace import PREFILL_ONLY, SLOW_PREFILL, WORKLOADS, Workspace, tiny_study, yaml

PLAN = "results/studies/tiny/stages/{stage}/plan.json"


@pytest.fixture(scope="module")
def proved(tmp_path_factory):
    """A study of two workloads whose one candidate is far ahead, measured to its end."""
    workspace = Workspace.create(tmp_path_factory.mktemp("proof") / "proof")
    study = tiny_study()
    study["objective"] |= {"on": "prefill", "margin_percent": 0}
    study["baseline"] |= {"options": SLOW_PREFILL}
    # some CPUs read eight tokens at a time as fast as 512; q4_0 has faster kernels on all
    fast = {"label": "fast", "model": "q4_0", "options": {"max_num_batched_tokens": 512}}
    study["stages"] = [{"name": "batch", "candidates": [fast]}]
    study["workloads"] = ["prefill", "tiny"]
    workspace.write_study(study)
    workloads = {**WORKLOADS, "prefill": PREFILL_ONLY}
    workspace.write("config/workloads.yaml", yaml.safe_dump(workloads, sort_keys=False))
    workspace.snakemake()
    return workspace


def jobs_of(workspace, stage):
    """Start label → workload → (job, server start) of baseline and winner."""
    found = {}
    for candidate in workspace.json(PLAN.format(stage=stage))["candidates"]:
        for run in candidate["runs"]:
            status = workspace.json(f"results/runs/{run['run_id']}/status.json")
            side = found.setdefault(run["start"], {}).setdefault(candidate["candidate"], [])
            side.append((status["job_id"], status["start_id"], status["started_at"]))
    return found


@pytest.mark.slow
def test_a_pair_is_one_job_and_every_other_begins_with_the_winner(proved):
    pairs = jobs_of(proved, "confirm-first")
    assert [label[-2:] for label in pairs] == ["-0", "-1", "-2"]
    for label, sides in pairs.items():
        assert {job for side in sides.values() for job, _, _ in side} == {sides["baseline"][0][0]}
        # llama.cpp keeps prompts, so that it is started again before each of the two workloads
        assert all(len({start for _, start, _ in side}) == len(side) == 2 for side in sides.values())
        first = min(sides, key=lambda name: min(at for _, _, at in sides[name]))
        assert first == ("winner" if label.endswith("-1") else "baseline")
    assert len({sides["baseline"][0][0] for sides in pairs.values()}) == 3
    every = jobs_of(proved, "confirm")
    assert {label: every[label] for label in pairs} == pairs  # the first pairs are among them


@pytest.mark.slow
def test_what_is_lost_of_a_pair_is_measured_again_and_only_that(proved, tmp_path):
    workspace = proved.copy(tmp_path / "copy")
    winner = workspace.json(PLAN.format(stage="confirm"))["candidates"][1]
    lost = next(run["run_id"] for run in winner["runs"] if run["start"].endswith("-1"))
    shutil.rmtree(workspace.folder / "results/runs" / lost)
    assert "1 server start left" in workspace.snakemake("--dry-run")
    assert lost in workspace.measured_by()
