"""Devices are found as the vendors' tools list them, and leased to one run at a time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from servelab.devices import DEVICES
from servelab.errors import Outage
from servelab.lease import lease

DATA = Path(__file__).parents[1] / "data"
TOOLS = {
    "cpu": ("true", ""),
    "nvidia": (
        "nvidia-smi",
        "0, GPU-8f2a4c1e-0000-0000-0000-000000000000, NVIDIA H100 80GB HBM3, 570.86.10, 81559\n"
        "1, GPU-1b7d9e3f-0000-0000-0000-000000000001, NVIDIA H100 80GB HBM3, 570.86.10, 81559\n",
    ),
    "ascend": ("npu-smi", (DATA / "npu-smi-info-m.txt").read_text()),
}
"""What each kind's tool prints on a machine that has two (a CPU is one)."""
VARIABLES = ("CUDA_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES")


@pytest.fixture(autouse=True)
def machine(tmp_path, monkeypatch):
    """A machine with the tools above, nothing restricted, and locks of its own."""
    for name, said in TOOLS.values():
        tool = tmp_path / name
        tool.write_text(f"#!/bin/sh\ncat <<'END'\n{said}END\n")
        tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)


@pytest.mark.parametrize("name", DEVICES.names())
def test_every_kind_finds_its_devices(name):
    kind = DEVICES.get(name)
    found = kind.find()
    assert [device.index for device in found] == (["0"] if name == "cpu" else ["0", "1"])
    assert all(device.name for device in found)
    assert len({device.key for device in found}) == len(found)
    assert 1 <= kind.threads(8) <= 8


def test_names_and_memory():
    gpu = DEVICES.get("nvidia").find()[1]
    assert (gpu.name, gpu.driver, gpu.memory_bytes) == ("NVIDIA H100 80GB HBM3", "570.86.10", 81559 << 20)
    assert DEVICES.get("ascend").find()[1].name == "Ascend 910B4"


@pytest.mark.parametrize(
    ("kind", "variable", "value", "indices"),
    [
        ("nvidia", "CUDA_VISIBLE_DEVICES", "1", ["1"]),
        ("nvidia", "CUDA_VISIBLE_DEVICES", "GPU-1b7d", ["1"]),
        ("nvidia", "CUDA_VISIBLE_DEVICES", "", []),
        ("ascend", "ASCEND_RT_VISIBLE_DEVICES", "1,0", ["1", "0"]),
    ],
)
def test_what_a_batch_system_gave_is_all_there_is(kind, variable, value, indices, monkeypatch):
    monkeypatch.setenv(variable, value)
    assert [device.index for device in DEVICES.get(kind).find()] == indices


def test_lease_shows_the_engine_its_devices_only():
    with lease("nvidia", 1) as first, lease("nvidia", 1) as second:
        assert first.environment == {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "0"}
        assert second.environment["CUDA_VISIBLE_DEVICES"] == "1"


def test_more_than_there_are_is_an_outage():
    with pytest.raises(Outage, match=r"needs 3 nvidia .* offers it 2"), lease("nvidia", 3):
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
    assert "waiting for 1 more nvidia device(s)" in capfd.readouterr().err


def test_a_killed_holder_gives_back():
    code = "import time; from servelab.lease import lease\nwith lease('cpu', 1): print(flush=True); time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as holder:
        holder.stdout.readline()
        holder.send_signal(signal.SIGKILL)
    with lease("cpu", 1):
        pass


def test_locks_in_a_folder_of_somebody_else_are_refused(monkeypatch, tmp_path):
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared/servelab").symlink_to(Path("/"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "shared"))
    with pytest.raises(Outage, match="not this user's own"), lease("cpu", 1):
        pass
