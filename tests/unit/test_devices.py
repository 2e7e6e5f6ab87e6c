"""Devices are found as the vendors' tools list them, and leased to one run at a time."""

from __future__ import annotations

import os
import subprocess
import threading
from pathlib import Path

import pytest
from device_tools import DATA, gpu_key, instance_key, write_npu_smi, write_nvidia_smi

from servelab.core.errors import Outage
from servelab.machine.device_names import WantedDevices, found_name
from servelab.machine.devices import DEVICES, Device, ascend, neighbours
from servelab.machine.lease import Batch, lease, pinned, try_lock

MAPPINGS = Path(__file__).parents[1] / "data/npu-smi-info-m.txt"
BY_TOOL = {"nvidia": write_nvidia_smi, "ascend": write_npu_smi}
VARIABLES = ("CUDA_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES", "SLURM_JOB_ID")
several_cpus = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="cores are kept back from two on")


@pytest.fixture(autouse=True)
def machine(tmp_path, monkeypatch):
    """A machine with two devices of each kind, nothing restricted, and locks of its own."""
    for write in BY_TOOL.values():
        write(tmp_path, 2)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("SERVELAB_LOCKS", str(tmp_path / "locks"))
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)


@pytest.mark.parametrize("name", DEVICES.names())
def test_every_kind_finds_its_devices(name):
    kind = DEVICES.get(name)
    found = kind.find()
    if name in BY_TOOL:
        assert [device.index for device in found] == ["0", "1"]
    assert all(device.name for device in found)
    assert len({device.key for device in found}) == len(found) > 0
    assert neighbours(found, 1)[0] in found
    assert kind.threads(8, 1) == (8 if name in ("cpu", "elsewhere") else 1) and kind.threads(8, 16) <= 8


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (MAPPINGS.read_text(), [("0", "ascend-0-0"), ("1", "ascend-3-0")]),
        (
            (DATA / "npu-map-a3.txt").read_text(),
            [("0", "ascend-0-0"), ("1", "ascend-0-1"), ("2", "ascend-1-0")],
        ),
        (
            "NPU ID    Slot ID    Chip ID    Chip Phy-ID    Chip Name\n"
            "4         2          0          4              Ascend950PR\n",
            [("4", "ascend-4-0")],
        ),
        ("", []),
        ("dcmi module initialize failed. ret is -8005\n", []),
    ],
)
def test_mapping_tables_of_all_generations(text, expected):
    assert [(device.index, device.key) for device in ascend.parse(text)] == expected


def test_instances_of_a_split_gpu_are_leased_by_uuid_and_never_the_gpu(tmp_path):
    write_nvidia_smi(tmp_path, 2, instances={1: ["3g.40gb", "1g.10gb"]}, mig="Enabled")
    among = WantedDevices(DEVICES.get("nvidia"), ["NVIDIA H100 MIG 3g.40gb"], {}).among
    found = DEVICES.get("nvidia").find()
    assert [device.index for device in found] == ["0", "1:0", "1:1"]
    with lease("nvidia", 1, among) as leased:
        (device,) = leased.devices
        assert leased.environment["CUDA_VISIBLE_DEVICES"] == device.key == instance_key(1, 0)
        assert (device.name, found_name(device)) == ("NVIDIA H100 80GB HBM3 MIG 3g.40gb",) * 2
        assert device.settings and device.settings.mig_mode == "Enabled"
        assert try_lock(gpu_key(1)) is None, "the GPU is not to be had whole meanwhile"
        with lease("nvidia", 1, lambda devices, giver: devices[2:]) as other:
            assert other.environment["CUDA_VISIBLE_DEVICES"] == instance_key(1, 1)
    with pytest.raises(Outage, match="needs 2 nvidia"), lease("nvidia", 2, among):
        pass


def test_neighbours_are_leased_and_written_down(tmp_path):
    write_nvidia_smi(tmp_path, 4)
    with lease("nvidia", 1) as single:
        assert single.environment["CUDA_VISIBLE_DEVICES"] == "0"
        with lease("nvidia", 2) as pair:
            assert pair.environment["CUDA_VISIBLE_DEVICES"] == "2,3"
            placement = pair.placement()
    assert [(d.index, d.key) for d in placement.devices] == [("2", gpu_key(2)), ("3", gpu_key(3))]
    assert placement.batch == Batch(system="none", job_id=None, node=None)
    assert placement.server_cpus is placement.client_cpus is None


def test_more_than_there_are_is_an_outage():
    with pytest.raises(Outage, match=r"needs 3 nvidia .* this machine has 2"), lease("nvidia", 3):
        pass


def test_missing_tool_is_an_outage(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    with pytest.raises(Outage, match="nvidia-smi"), lease("nvidia", 1):
        pass


def test_waits_until_enough_are_free_and_says_so(capfd):
    order = []

    def take_both():
        with lease("nvidia", 2):
            order.append("both")

    with lease("nvidia", 1):
        waiting = threading.Thread(target=take_both)
        waiting.start()
        waiting.join(1)
        assert order == []
    waiting.join(30)
    assert order == ["both"]
    assert "waiting for 1 of 2 device(s)" in capfd.readouterr().err


def test_a_server_that_outlives_its_run_keeps_the_device():
    with subprocess.Popen(["sleep", "600"]) as unrelated, lease("cpu", 1) as leased:
        server = subprocess.Popen(["sleep", "600"], pass_fds=leased.descriptors)
        unrelated.kill()
    assert try_lock("cpu") is None
    server.kill()
    server.wait()
    with lease("cpu", 1):
        pass


@several_cpus
def test_cores_keep_a_server_on_them_and_the_client_off_them():
    with lease("cpu-cores", 1) as leased:
        assert leased.cpus and leased.client_cpus and not leased.cpus & leased.client_cpus
        assert leased.cpus | leased.client_cpus <= os.sched_getaffinity(0)
        with pinned(leased.cpus):
            child = subprocess.run(["nproc"], capture_output=True, text=True, check=True, env={"PATH": "/usr/bin"})
        assert int(child.stdout) == len(leased.cpus)
    assert os.sched_getaffinity(0) > leased.cpus


@several_cpus
def test_who_has_the_whole_machine_has_its_cores():
    with lease("cpu", 1):
        assert try_lock("cpu/core-1") is None
    with lease("cpu-cores", 1):
        assert try_lock("cpu") is None


# links of real nodes


@pytest.mark.parametrize(
    ("free", "count", "chosen"),
    [
        # DGX-1 (V100), DGX A100: fours that are all linked, or in one NUMA node, are 0-3 and 4-7.
        ("01234567", 4, "0123"),
        ("1234567", 4, "4567"),
        ("0234567", 4, "4567"),
        ("01234567", 2, "01"),
        # 910B3: a pair does not break a four that is free.
        ("1234567", 2, "23"),
        # NVLink bridges: a single one does not break a pair that is free.
        ("0123", 2, "01"),
        ("123", 2, "23"),
        ("123", 1, "1"),
        ("013", 1, "3"),
        # 4090s without links, two NUMA nodes: two of one of them.
        ("0345", 2, "45"),
        ("035", 2, "03"),
        # in the order of the list, as a variable may give it
        ("3102", 2, "10"),
        ("7", 1, "7"),
        # instances of one GPU
        (("0:1", "1:0", "1:1"), 2, ("1:0", "1:1")),
    ],
)
def test_neighbours_are_chosen(free, count, chosen):
    devices = [Device(index=number, key=f"gpu{number}", name="gpu") for number in free]
    assert [device.index for device in neighbours(devices, count)] == list(chosen)
