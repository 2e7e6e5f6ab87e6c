"""What a site says reaches Slurm: a pair on the accelerators of both sides, cheap rules on CPU nodes, who pays."""

import pytest
import yaml
from slurm.conftest import H100, SITE, SlurmWorkspace, study
from workflow.workspace import PREFILL_ONLY, SLOW_PREFILL

pytestmark = pytest.mark.slurm
DECISION = "results/studies/pairs/stages/batch/decision.json"
NEED_NETWORK = {"download_dataset", "download_model", "build_environment"}


@pytest.fixture(scope="module")
def placed(cluster, tmp_path_factory):
    """A study with a pair, up to its decision, on a site that says all it can."""
    hardware = {"accelerator": H100, "device": "nvidia", "per_node": 8}
    content = study("pairs", hardware, {"accelerators": 4}, [], ["prefill"])
    content["baseline"]["options"] |= SLOW_PREFILL
    content["objective"] |= {"margin_percent": 0, "interleaved_cycles": 1}
    fast = {"label": "fast", "accelerators": 2, "options": {"max_num_batched_tokens": 512}}
    content["stages"] = [{"name": "batch", "candidates": [fast]}]
    workspace = SlurmWorkspace.on(cluster, tmp_path_factory.mktemp("placed") / "workspace", [content])
    workspace.write("config/workloads.yaml", yaml.safe_dump({"prefill": PREFILL_ONLY}, sort_keys=False))
    h100 = SITE["accelerators"][H100] | {"account": "ours", "qos": "long", "constraint": "loopback&x86"}
    site = SITE | {"accelerators": {H100: h100}, "cheap_rules": {"partition": "cpu", "memory_gb": 1, "runtime_min": 9}}
    workspace.write("config/sites/loopback.yaml", yaml.safe_dump(site))
    before = len(cluster.submitted())
    workspace.snakemake(DECISION)
    workspace.submitted = cluster.submitted()[before:]
    known = {job["comment"]: job for job in cluster.jobs("all")}
    workspace.jobs = {comment: known[comment] for _, comment in workspace.submitted}
    return workspace


def rule(comment):
    return comment.removeprefix("rule_").partition("_wildcards_")[0]


def test_a_pair_is_one_job_with_the_accelerators_of_its_larger_side(placed):
    planned = placed.json("results/studies/pairs/stages/batch/pair.json")
    (job,) = [job for comment, job in placed.jobs.items() if rule(comment) == "measure_pair"]
    assert (job["run"], job["state"], job["asked"]) == (planned["pair_id"], "COMPLETED", "gres:gpu:h100:4")
    folder = placed.folder / "results/pairs" / planned["pair_id"]
    assert placed.json(folder / "status.json")["order"] == "abba"
    of_side = {
        side: [device["index"] for device in placed.json(folder / side / "manifest.json")["devices"]] for side in "ab"
    }
    assert {side: len(devices) for side, devices in of_side.items()} == {"a": 4, "b": 2}
    assert set(of_side["b"]) < set(of_side["a"])
    assert placed.json(DECISION)["candidates"][1]["pair_id"] == planned["pair_id"]


def test_rules_that_need_no_accelerator_are_jobs_on_cpu_nodes(placed):
    cheap = {rule(comment): job for comment, job in placed.jobs.items() if not rule(comment).startswith("measure")}
    assert {"prepare_workload", "plan_stage", "parse_stage", "plan_pair", "decide_stage"} <= cheap.keys()
    assert NEED_NETWORK.isdisjoint(cheap)
    asked = {(job["state"], job["partition"], job["asked"], job["memory"]) for job in cheap.values()}
    assert asked == {("COMPLETED", "cpu", "N/A", "1000M")}


def test_account_quality_of_service_and_constraint_reach_slurm(placed, cluster):
    measuring = {comment: job for comment, job in placed.jobs.items() if rule(comment).startswith("measure")}
    assert {rule(comment) for comment in measuring} == {"measure", "measure_pair"}
    for arguments, comment in placed.submitted:
        assert ("--qos=long" in arguments) == (comment in measuring)
    for job in measuring.values():
        known = cluster.ask("scontrol", "show", "job", job["id"])
        assert "Account=ours QOS=(null)" in known  # which a Slurm without an accounting database forgets
        assert "Features=loopback&x86" in known
