"""What a site says reaches Slurm: a pair on the accelerators of both sides, who pays."""

import pytest
import yaml
from slurm.conftest import H100, SITE, SlurmWorkspace, study
from workflow.workspace import PREFILL_ONLY, SLOW_PREFILL

pytestmark = pytest.mark.slurm
STAGE = "results/studies/pairs/stages/confirm-first"


@pytest.fixture(scope="module")
def placed(cluster, tmp_path_factory):
    """A study up to its first pairs, on a site that says all it can."""
    hardware = {"accelerator": H100, "device": "nvidia", "per_node": 8}
    content = study("pairs", hardware, {"accelerators": 4}, [], ["prefill"])
    content["baseline"]["options"] |= SLOW_PREFILL
    content["objective"] |= {"margin_percent": 0}
    fast = {"label": "fast", "accelerators": 2, "options": {"max_num_batched_tokens": 512}}
    content["stages"] = [{"name": "batch", "candidates": [fast]}]
    workspace = SlurmWorkspace.on(cluster, tmp_path_factory.mktemp("placed") / "workspace", [content])
    workspace.write("config/workloads.yaml", yaml.safe_dump({"prefill": PREFILL_ONLY}, sort_keys=False))
    h100 = SITE["accelerators"][H100] | {"account": "ours", "qos": "long", "constraint": "loopback&x86"}
    site = SITE | {"accelerators": {H100: h100}}
    workspace.write("config/sites/loopback.yaml", yaml.safe_dump(site))
    before = len(cluster.submitted())
    workspace.snakemake(f"{STAGE}/table.parquet")
    workspace.submitted = cluster.submitted()[before:]
    known = {job["comment"]: job for job in cluster.jobs("all")}
    workspace.jobs = {comment: known[comment] for _, comment in workspace.submitted}
    return workspace


def rule(comment):
    return comment.removeprefix("rule_").partition("_wildcards_")[0]


def test_a_pair_is_one_job_with_the_accelerators_of_its_larger_side(placed):
    baseline, winner = (
        {run["start"]: run["run_id"] for run in candidate["runs"]}
        for candidate in placed.json(f"{STAGE}/plan.json")["candidates"]
    )
    assert list(baseline) == list(winner) and [start[-2:] for start in baseline] == ["-0", "-1", "-2"]
    measuring = {job["run"]: job for comment, job in placed.jobs.items() if rule(comment) == "measure"}
    for number, start in enumerate(baseline):
        sides = (baseline[start], winner[start])
        leader = sides[(number + 1) % 2]  # every other pair begins with the winner
        (job,) = [job for run, job in measuring.items() if run in sides]
        assert (job["run"], job["state"], job["asked"]) == (leader, "COMPLETED", "gres:gpu:h100:4")
        statuses = [placed.json(placed.folder / "results/runs" / run / "status.json") for run in sides]
        assert len({status["job_id"] for status in statuses}) == 1
        assert len({status["start_id"] for status in statuses}) == 2
        assert sorted(status["started_at"] for status in statuses)[-1] == statuses[(number + 1) % 2]["started_at"]
        of_side = [
            [
                device["index"]
                for device in placed.json(placed.folder / "results/runs" / run / "manifest.json")["devices"]
            ]
            for run in sides
        ]
        assert [len(devices) for devices in of_side] == [4, 2]
        assert set(of_side[1]) < set(of_side[0])


def test_account_quality_of_service_and_constraint_reach_slurm(placed, cluster):
    measuring = {comment: job for comment, job in placed.jobs.items() if rule(comment).startswith("measure")}
    assert len(measuring) == 2 + 3
    for arguments, comment in placed.submitted:
        assert ("--qos=long" in arguments) == (comment in measuring)
    for job in measuring.values():
        known = cluster.ask("scontrol", "show", "job", job["id"])
        assert "Account=ours QOS=(null)" in known  # which a Slurm without an accounting database forgets
        assert "Features=loopback&x86" in known
