"""A study's name for an accelerator is compared with the device as found, before anything waits for it."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest
from device_tools import write_npu_smi, write_nvidia_smi
from made_run import spec as made_spec
from made_study import demo_study

from servelab.core.errors import ConfigError
from servelab.core.identity import run_id
from servelab.machine.device_names import WantedDevices, fits
from servelab.machine.devices import DEVICES, Device
from servelab.machine.lease import lease
from servelab.measure.inputs import JobRun, MeasuringJob
from servelab.measure.visits import measure_job
from servelab.search.course import Step
from servelab.search.planning import plan_confirm
from servelab.study.configuration import baseline
from servelab.workflow.studies import Studies

H100 = "NVIDIA H100 80GB HBM3"


@pytest.fixture(autouse=True)
def machine(tmp_path, monkeypatch):
    """A machine with two H100s and two 910B3s, and locks of its own."""
    write_nvidia_smi(tmp_path, 2)
    write_npu_smi(tmp_path, 2)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("SERVELAB_LOCKS", str(tmp_path / "locks"))
    for variable in ("CUDA_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES", "SLURM_JOB_ID"):
        monkeypatch.delenv(variable, raising=False)


def wanted(kind, *names, **stated):
    """What runs of these accelerators want; `found_as` is stated of the first."""
    return WantedDevices(DEVICES.get(kind), names, {names[0]: stated.get("found_as", ())})


SAME = [
    ("nvidia", "NVIDIA H100 SXM", H100),
    ("nvidia", H100, H100),
    ("nvidia", "NVIDIA H100", "NVIDIA H100 PCIe"),
    ("nvidia", "NVIDIA H100 NVL 94GB", "NVIDIA H100 NVL"),
    ("nvidia", "NVIDIA RTX 4090", "NVIDIA GeForce RTX 4090"),
    ("nvidia", "gpu", "NVIDIA GeForce RTX 4070 Ti"),
    ("nvidia", "H100 MIG", f"{H100} MIG"),
    ("nvidia", "NVIDIA H100 MIG 3g.40gb", f"{H100} MIG 3g.40gb"),
    ("ascend", "Ascend 910B", "Ascend 910B4"),
    ("ascend", "Ascend 910C", "Ascend910"),
    ("cpu", "cpu", "AMD EPYC 9654 96-Core Processor"),
    ("cpu", "Intel Xeon Platinum 8480+", "Intel(R) Xeon(R) Platinum 8480+"),
]
OTHER = [
    ("cpu", "NVIDIA H100 SXM", "AMD EPYC"),
    ("cpu", "AMD EPYC 9654", "AMD EPYC 9554 64-Core Processor"),
    ("nvidia", "NVIDIA H100 SXM", "NVIDIA H100 PCIe"),
    ("nvidia", "NVIDIA H100", "NVIDIA H200"),
    ("nvidia", "NVIDIA A100 40GB", "NVIDIA A100-SXM4-80GB"),
    ("nvidia", "NVIDIA RTX 4090", "NVIDIA GeForce RTX 4090 Laptop GPU"),
    ("nvidia", "NVIDIA H100", f"{H100} MIG"),
    ("nvidia", "gpu", f"{H100} MIG 3g.40gb"),
    ("nvidia", "NVIDIA H100 MIG 3g.40gb", f"{H100} MIG 1g.10gb"),
    ("nvidia", "NVIDIA H100 MIG 3g.40gb", H100),
    ("ascend", "Ascend 910B3", "Ascend 910B4"),
]


@pytest.mark.parametrize(("kind", "name", "found"), [*SAME, *OTHER])
def test_names_of_one_accelerator_and_of_different_ones(kind, name, found):
    assert fits(name, found, DEVICES.get(kind).words) is ((kind, name, found) in SAME)


def test_the_error_names_key_what_was_found_and_the_fix():
    processor = Device("0", key="cpu", name="AMD EPYC 7B13")
    with pytest.raises(ConfigError) as error:
        wanted("cpu", "NVIDIA H100 SXM").among([processor], "this machine")
    assert str(error.value) == (
        "hardware.accelerator: runs are of `NVIDIA H100 SXM`, but this machine has "
        "`AMD EPYC 7B13`, so nothing is measured; run where that accelerator is, or correct the name; if both are the "
        'same, add `found_as: ["AMD EPYC 7B13"]` to `hardware`'
    )


def test_a_split_gpu_is_refused_unless_the_study_says_so(tmp_path):
    write_nvidia_smi(tmp_path, 2, mig="Enabled")
    with lease("nvidia", 1) as leased:
        with pytest.raises(ConfigError, match=f"has `{H100} MIG`"):
            wanted("nvidia", "NVIDIA H100").check(leased.devices, "this machine")
        wanted("nvidia", "NVIDIA H100", found_as=(f"{H100} MIG",)).check(leased.devices, "this machine")
        wanted("nvidia", "NVIDIA H100 MIG").check(leased.devices, "this machine")


def test_a_job_on_the_wrong_machine_keeps_no_result(monkeypatch, tmp_path):
    """It is the user's mistake, not the candidate's failure, and not an outage that is tried again."""
    spec = made_spec(hardware={"accelerator": "NVIDIA H100 SXM", "device": "cpu", "count": 1})
    files = {"environment": "e.json", "model": "m.json", "requests": "r.parquet"}
    job = MeasuringJob(visits=[[JobRun(spec=spec, **files)]])
    monkeypatch.setattr(JobRun, "inputs", lambda run: SimpleNamespace(spec=run.spec, check=lambda: None))
    with pytest.raises(ConfigError, match="runs are of `NVIDIA H100 SXM`") as error:
        measure_job(job, tmp_path / "runs")
    assert error.value.exit_code == 2
    assert not (tmp_path / f"runs/{run_id(spec)}").exists()


def of_another_machine(make_project):
    """The studies of a project whose accelerator this machine lacks, and that project."""
    study = demo_study()
    study["hardware"] = {"accelerator": "NVIDIA H200", "device": "nvidia"}
    made = make_project(study)
    return Studies(live={"cpu-smollm2": made}, recorded={}), made


def test_a_workflow_on_this_machine_stops_before_it_starts(make_project, tmp_path):
    studies, _ = of_another_machine(make_project)
    with pytest.raises(
        ConfigError,
        match=r"^config/studies/cpu-smollm2.yaml: hardware.accelerator: runs are of `NVIDIA H200`",
    ):
        studies.check_accelerators(["cpu-smollm2"])
    studies.check_accelerators([])
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\nexit 9\n")
    studies.check_accelerators(["cpu-smollm2"])  # the measuring job says that it cannot ask


def test_a_study_that_is_all_measured_needs_no_accelerator(make_project, tmp_path):
    studies, made = of_another_machine(make_project)
    plan = plan_confirm(made, baseline(made.study), 3)
    step = Step(plan, is_known=True)
    courses, measured = {"cpu-smollm2": [step]}, set(plan.run_ids())
    assert studies.unmeasured(tmp_path, courses, measured.__contains__) == ["cpu-smollm2"], "no stage is planned yet"
    for stage in studies.planned_stages("studies/cpu-smollm2"):
        folder = tmp_path / f"studies/cpu-smollm2/stages/{stage}"
        folder.mkdir(parents=True)
        plan.write(folder / "plan.json")
    assert studies.unmeasured(tmp_path, courses, measured.__contains__) == []
    assert studies.unmeasured(tmp_path, courses, (measured - {min(measured)}).__contains__) == ["cpu-smollm2"]
    study = demo_study()
    study["hardware"] = {"accelerator": "NVIDIA B200", "device": "nvidia"}
    renamed = make_project(study)
    other = Step(plan_confirm(renamed, baseline(renamed.study), 3), is_known=True)
    edited = {"cpu-smollm2": [other]}
    assert studies.unmeasured(tmp_path, edited, measured.__contains__) == ["cpu-smollm2"], "its plans are older"
