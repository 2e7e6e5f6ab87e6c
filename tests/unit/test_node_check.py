"""Faults of a node that are seen before a start, with the words that they have in an engine's log."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from servelab.engines.failure_signs import FAULTS
from servelab.machine.devices import Device, DeviceSettings
from servelab.measure import node_check
from servelab.measure.node_check import check_node, healthy
from servelab.measure.server import EnvironmentFault

GPUS = [
    Device(str(n), f"GPU-{n}", "NVIDIA H100", driver="550.1", settings=DeviceSettings(runtime="12.4")) for n in range(2)
]
NPU = Device("0", "ascend-0-0", "910B4")
GOOD = {"used": "12", "mode": "Default", "ecc": "0", "mig": "Disabled", "capability": "9.0"}
NPU_TABLE = (Path(__file__).parents[1] / "data/npu-smi-info-910b4.txt").read_text()


@pytest.fixture
def node(monkeypatch):
    """Vendors' tools that print a healthy GPU 1, a GPU 0 with changes, and an NPU."""

    def make(npu="OK", **changes):
        def answer(command):
            if command[0] == "npu-smi":
                return NPU_TABLE.replace("| OK            | 78.2", f"| {npu:13} | 78.2")
            if "compute-apps" in command[1]:
                return "GPU-0, 4711\n"
            rows = enumerate([GOOD | changes, GOOD])
            return "".join(
                f"GPU-{n}, {g['used']}, 81559, {g['mode']}, {g['ecc']}, {g['mig']}, {g['capability']}\n"
                for n, g in rows
            )

        monkeypatch.setattr(node_check, "answer", answer)

    make()
    return make


def fault(devices=GPUS, **given) -> str:
    with pytest.raises(EnvironmentFault) as error:
        check_node(devices, {}, **given)
    return str(error.value)


@pytest.mark.parametrize(
    ("changes", "said", "words"),
    [
        ({"used": "30000"}, "30000 of 81559 MiB of GPU 0 are occupied by other processes (process 4711)", "hold"),
        ({"used": "30000", "mode": "Exclusive_Process"}, "in exclusive mode", "exclusive mode"),
        ({"mode": "Prohibited"}, "GPU 0 is in prohibited mode", "exclusive mode"),
        ({"ecc": "3"}, "GPU 0 has 3 uncorrectable ECC errors", "hardware error"),
        ({"mig": "Enabled"}, "has no instance", "sees no device"),
    ],
)
def test_faults_of_devices(changes, said, words, node):
    check_node(GPUS, {})
    node(**changes)
    text = fault()
    assert said in text and words in text and "seen before the start" in text and "To mend it: " in text


def test_an_npu_with_an_alarm(node):
    check_node([NPU], {})
    node(npu="Alarm")
    assert "NPU 0: device health abnormal (Alarm)" in fault([NPU])


@pytest.mark.parametrize(
    ("packages", "capability", "said"),
    [
        ({"torch": "2.9.0+cu130"}, "9.0", "the driver 550.1 is too old: it supports CUDA 12.4"),
        ({"nvidia-cuda-runtime": "13.0.1"}, "9.0", "the driver 550.1 is too old"),
        ({"torch": "2.6.0+cu124"}, "12.0", "no kernel image for GPU 0 (sm_120): the engine is built for CUDA 12.4"),
        ({"torch": "2.8.0+cu128"}, "12.0", None),
        ({"torch": "2.8.0+cu128"}, "9.0", None),
        ({"torch": "2.8.0+cpu"}, "5.0", None),
    ],
)
def test_driver_and_device_against_the_engine_s_cuda(packages, capability, said, node):
    node(capability=capability)
    if said is None:
        check_node(GPUS, {}, packages)
    else:
        assert said in fault(packages=packages)


def test_folders_limits_and_shared_memory(node, tmp_path, monkeypatch):
    def usage(free):
        monkeypatch.setattr(node_check.shutil, "disk_usage", lambda folder: SimpleNamespace(free=free))

    usage(2**40)
    check_node(GPUS, {"HOME": str(tmp_path), "TMPDIR": str(tmp_path / "not/there")}, requests_at_once=16)
    usage(200 * 2**20)
    assert list(node_check.full_folders({"TMPDIR": str(tmp_path / "not/there")})) == [
        f"no space left on device: 200 MiB are free in {tmp_path}"
    ]
    assert list(node_check.small_shm(2, tmp_path)) and not list(node_check.small_shm(1, tmp_path))
    check_node(GPUS, {"HOME": str(tmp_path)}, is_container=True)
    monkeypatch.setattr(node_check.resource, "getrlimit", lambda which: (128, 128))
    lines = list(node_check.low_limits(16))
    assert len(lines) == 2 and all(any(sign.pattern.search(line) for sign in FAULTS) for line in lines)


def test_proxies_and_a_model_that_is_not_there(node, tmp_path):
    check_node(GPUS, {"http_proxy": "http://p:1", "NO_PROXY": "localhost,127.0.0.1"}, model=tmp_path)
    with pytest.raises(EnvironmentFault, match="a proxy takes requests to this machine: http_proxy is set"):
        check_node(GPUS, {"HTTP_PROXY": "http://p:1"})
    assert "files are missing or damaged: path not found" in fault(model=tmp_path / "model")


def test_a_broken_device_is_left_out_where_there_is_another(node):
    node(ecc="3")
    assert [device.index for device in healthy(GPUS, 1)] == ["1"]
    assert len(healthy(GPUS, 2)) == 2
