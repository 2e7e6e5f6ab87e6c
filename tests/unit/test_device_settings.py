"""How devices and processors are set up, as the vendors' tools and the kernel report it."""

from __future__ import annotations

import os

import pytest
from device_tools import gpu_key, nvidia_log, write_npu_smi, write_nvidia_smi

from servelab.machine import cpu as cpu_facts
from servelab.machine.cpu import CpuSettings, cpu_model, cpu_settings
from servelab.machine.devices import DEVICES, DeviceSettings, ascend, nvidia
from servelab.machine.lease import lease

H100 = DeviceSettings(
    runtime="CUDA 12.8",
    mig_mode="Disabled",
    ecc_mode="Enabled",
    power_limit_w=700.0,
    clock_core_mhz=1980.0,
    clock_memory_mhz=2619.0,
)


@pytest.fixture(autouse=True)
def machine(tmp_path, monkeypatch):
    """Tools of two devices of each kind, locks of its own, and no CANN."""
    write_nvidia_smi(tmp_path, 2)
    write_npu_smi(tmp_path, 2)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("SERVELAB_LOCKS", str(tmp_path / "locks"))
    monkeypatch.setattr(ascend, "_TOOLKITS", (tmp_path / "cann",))
    monkeypatch.setattr(cpu_facts, "SYSTEM", tmp_path / "cpu")
    monkeypatch.setattr(cpu_facts, "CPUINFO", tmp_path / "cpuinfo")
    cpu_facts._lscpu.cache_clear()
    names = ("CUDA_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES", "SLURM_JOB_ID", "ASCEND_HOME_PATH")
    for variable in (*names, "ASCEND_TOOLKIT_HOME"):
        monkeypatch.delenv(variable, raising=False)
    yield
    cpu_facts._lscpu.cache_clear()


def of_kind(name):
    kind = DEVICES.get(name)
    return kind.described(kind.find())


def test_settings_of_each_gpu_are_in_the_lease():
    with lease("nvidia", 1) as leased:
        assert leased.devices[0].settings == leased.part(1).devices[0].settings == H100


@pytest.mark.parametrize(
    ("old", "new", "changes"),
    [
        ("<current_power_limit>700.00 W", "<power_limit>350.00 W", {"power_limit_w": 350.0}),  # a former release
        ("gpu_power_readings", "power_readings", {"power_limit_w": None}),
        ("1980 MHz", "N/A", {"clock_core_mhz": None}),
        ("2619 MHz", "Requested functionality has been deprecated", {"clock_memory_mhz": None}),
        ("<current_ecc>Enabled", "<current_ecc>[N/A]", {"ecc_mode": None}),
        ("<cuda_version>12.8</cuda_version>", "", {"runtime": None}),
    ],
)
def test_releases_and_boards_that_report_less_or_otherwise(old, new, changes):
    closing = {"<power_limit>350.00 W": "power_limit"}.get(new)
    text = nvidia_log(1).replace(old, new)
    if closing:
        text = text.replace("350.00 W</current_power_limit>", "350.00 W</power_limit>")
    assert nvidia.parse_settings(text) == {gpu_key(0): H100.model_copy(update=changes)}


def test_settings_of_npus(tmp_path, monkeypatch):
    folder = tmp_path / f"toolkit/{ascend.platform.machine()}-linux"
    folder.mkdir(parents=True)
    (folder / "ascend_toolkit_install.info").write_text("package_name=Ascend-cann-toolkit\nversion=8.5.0\narch=x\n")
    found = of_kind("ascend")
    expected = DeviceSettings(ecc_mode="Enabled", clock_core_mhz=1800.0)
    assert [(device.driver, device.settings) for device in found] == [("23.0.5", expected)] * 2
    monkeypatch.setenv("ASCEND_HOME_PATH", str(tmp_path / "toolkit"))
    assert of_kind("ascend")[0].settings == expected.model_copy(update={"runtime": "CANN 8.5.0"})


def made_cpus(tmp_path, **files):
    for name, text in files.items():
        path = tmp_path / "cpu" / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_processors_of_bare_metal(tmp_path):
    (tmp_path / "lscpu").write_text("#!/bin/sh\necho '  Hypervisor vendor:   KVM'\n")
    (tmp_path / "lscpu").chmod(0o755)
    (tmp_path / "cpuinfo").write_text(
        "processor\t: 0\nmodel name\t: AMD EPYC 9654 96-Core Processor\nmicrocode\t: 0xa101148\n\n"
        "processor\t: 1\nmodel name\t: AMD EPYC 9654 96-Core Processor\nmicrocode\t: 0xa101148\n"
    )
    for number, governor in enumerate(("performance", "powersave")):
        made_cpus(tmp_path, **{f"cpu{number}__cpufreq__scaling_governor": f"{governor}\n"})
        made_cpus(tmp_path, **{f"cpu{number}__cpufreq__scaling_max_freq": "3707812\n"})
    made_cpus(tmp_path, cpufreq__boost="0\n", smt__active="1\n")
    assert cpu_model() == "AMD EPYC 9654 96-Core Processor"
    assert cpu_settings() == CpuSettings(
        microcode="0xa101148",
        governor="performance, powersave",
        boost="off",
        highest_mhz="3707.81",
        smt="on",
        hypervisor="KVM",
    )
