"""Slurm's reasons, as it words them, and the keys of the site that they are about; a Slurm that is a script."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest
import status

from servelab.core.errors import ConfigError
from servelab.core.run_spec import HardwareSpec
from servelab.machine.allocations.slurm import keys_of, queue, unsatisfied
from servelab.study.site import Site
from servelab.workflow.slurm_jobs import Retries, refused, watch_slurm

H100 = HardwareSpec(accelerator="H100", device="nvidia", count=4)
FILE = Path("config/sites/ours.yaml")
SITE = Site.model_validate(
    {
        "site": "ours",
        "accelerators": {
            "H100": {"partition": "gpu", "gres": "gpu:h100", "cpus": 8, "memory_gb": 10, "extra": "-w n1"}
        },
    }
)


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """A script for each client, and the arguments it got."""

    def play(name, script):
        path = tmp_path / name
        path.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >>{tmp_path}/{name}.given\n{script}\n')
        path.chmod(0o755)
        return tmp_path / f"{name}.given"

    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return play


@pytest.mark.parametrize(
    ("reason", "key"),
    [
        ("PartitionConfig", "partition"),
        ("PartitionTimeLimit", "most_runtime_min"),
        ("MaxMemPerLimit", "memory_gb"),
        ("BadConstraints", "constraint"),
        ("ReqNodeNotAvail, UnavailableNodes:npu1", "partition"),
        ("Invalid account or account/partition combination specified", "account"),
        ("Requested node configuration is not available", "partition"),
        ("Invalid generic resource (gres) specification", "gres"),
        ("something new", "partition"),
    ],
)
def test_key_of_a_reason(reason, key):
    assert keys_of(reason)[0] == key


def test_only_jobs_that_do_not_start_by_themselves(slurm, tmp_path):
    usual = ("None", "Priority", "Resources", "Dependency", "BeginTime", "QOSMaxJobsPerUserLimit", "AssocGrpCpuLimit")
    usual += ("QOSMaxGRESPerUser", "QOSGrpNodeLimit", "AssocMaxJobsLimit", "ReqNode|NotAvail")
    odd = ("PartitionConfig", "ReqNodeNotAvail, UnavailableNodes:n1", "QOSMaxCpuPerJobLimit", "JobHeldAdmin")
    lines = [
        f"{number}|PENDING||-|-|x|{reason}|{tmp_path}|rule_measure_wildcards_x"
        for number, reason in enumerate((*usual[:-1], *odd))
    ]
    others = [
        "77|PENDING||-|-|x|PartitionConfig|/elsewhere|rule_x",
        f"78|PENDING||-|-|x|PartitionConfig|{tmp_path}|not ours",
    ]
    slurm("squeue", "cat <<'END'\n" + "\n".join([*lines, *others]) + "\nEND")
    assert [job.reason for job in unsatisfied(tmp_path)] == list(odd)


def test_slurm_is_asked_for_what_a_run_asks(slurm):
    given = slurm("sbatch", "echo 'allocation failure: Requested node configuration is not available' >&2; exit 1")
    ((first, reason),) = refused(SITE, FILE, [H100])
    assert reason == "Requested node configuration is not available"
    assert first == (
        "config/sites/ours.yaml: accelerators.H100.partition or gres or cpus or memory_gb: "
        "Slurm refuses a run on 4 × H100: Requested node configuration is not available"
    )
    asked = given.read_text().split("\n")
    assert {"--test-only", "--partition=gpu", "--gres=gpu:h100:4", "--cpus-per-task=32", "--mem=40000", "-w"} <= set(
        asked
    )


@pytest.mark.parametrize(
    "reason",
    [
        "Invalid partition name specified",
        "Memory required by task is not available",
        "Invalid generic resource (gres) specification",
        "Requested time limit is invalid (missing or exceeds some limit)",
    ],
)
def test_what_slurm_always_refuses_ends_the_workflow_before_any_job(slurm, reason, tmp_path):
    """Such a job was submitted three times, and each time refused."""
    slurm("sbatch", f"echo 'allocation failure: {reason}' >&2; exit 1")
    with pytest.raises(ConfigError) as error:
        watch_slurm(SITE, FILE, [H100], tmp_path, print)
    first = str(error.value)
    assert first.startswith("config/sites/ours.yaml: accelerators.H100.")
    assert first.endswith(f"Slurm refuses a run on 4 × H100: {reason}; change it, and start again")


@pytest.mark.parametrize(
    "reason",
    ["Required node not available (down, drained or reserved)", "Requested node configuration is not available"],
)
def test_what_slurm_may_take_later_is_a_warning(slurm, reason, tmp_path):
    slurm("sbatch", f"echo 'allocation failure: {reason}' >&2; exit 1")
    said = []
    watch_slurm(SITE, FILE, [H100], tmp_path, said.append)
    assert len(said) == 1 and "Slurm refuses" in said[0]


def test_the_status_shows_each_job_with_its_candidate_how_long_it_waits_and_slurms_reason(slurm, tmp_path):
    lines = [
        f"4|PENDING||2026-11-26T12:00:00|N/A|x|Priority|{tmp_path}|rule_measure_wildcards_abc",
        f"3|RUNNING|gpu1|2026-11-26T11:00:00|2026-11-26T12:09:00|x|None|{tmp_path}|rule_measure_wildcards_def",
        f"5|RUNNING|gpu1|-|-|x|None|{tmp_path}|rule_measure_wildcards_of_another_study",
    ]
    slurm("squeue", "cat <<'END'\n" + "\n".join(lines) + "\nEND")
    titles = {"abc": "layout, tp=4", "def": "layout, baseline"}
    assert list(status.queue_lines(titles, queue(tmp_path), datetime(2026, 11, 26, 12, 10))) == [
        "layout, baseline: Slurm job 3 running for 1 min on gpu1",
        "layout, tp=4: Slurm job 4 pending for 10 min: Priority",
    ]


@pytest.mark.parametrize(
    ("state", "in_log", "refuses", "changed"),
    [
        ("OUT_OF_MEMORY", "", False, {"mem_mb": 80}),
        ("FAILED", "slurmstepd: error: Exceeded job memory limit", False, {"mem_mb": 80}),
        ("OUT_OF_MEMORY", "", True, {}),
        ("FAILED", "error: no device is free", False, {"slurm_extra": "--nice=1 --exclude=n1"}),
        ("NODE_FAIL", "", True, {}),
        ("TIMEOUT", "", False, {}),
        ("CANCELLED", "", False, {}),
    ],
)
def test_a_lost_job_is_tried_again_as_its_cause_asks(state, in_log, refuses, changed, slurm, tmp_path):
    slurm(
        "squeue",
        f"echo '3|FAILED|n7|-|-|x|None|{tmp_path}|rule_measure_wildcards_abc'; "
        f"echo '4|{state}|n1|-|-|x|None|{tmp_path}|rule_measure_wildcards_abc'",
    )
    slurm("sbatch", "echo 'allocation failure: More than there is' >&2; exit 1" if refuses else "exit 0")
    log = tmp_path / ".snakemake/slurm_logs/rule_measure/abc/4.log"
    log.parent.mkdir(parents=True)
    log.write_text(in_log)
    slurm("scontrol", "echo '   DefMemPerNode=UNLIMITED MaxMemPerNode=100'")
    usual = {"mem_mb": 40, "slurm_extra": "--nice=1", "slurm_partition": "gpu"}
    retries = Retries(tmp_path)
    assert retries.request("abc", 1, usual) == usual
    assert retries.request("abc", 2, usual) == usual | changed == retries.known("abc", 2)
    third = retries.request("abc", 3, usual)
    if changed.get("mem_mb"):
        assert third["mem_mb"] == 80  # `--test-only` takes 120, and the job would wait forever
    if changed.get("slurm_extra"):  # of several `--exclude` Slurm takes the last
        assert third["slurm_extra"] == "--nice=1 --exclude=n1,n1"
