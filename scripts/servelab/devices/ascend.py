"""Ascend NPUs, by `npu-smi`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from servelab.devices import DEVICES, Device, Passthrough, ask, asked_topology
from servelab.topology import Topology

_DRIVER = Path("/usr/local/Ascend/driver/version.info")
_NODES = ("/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc")
_DRIVER_PATHS = (
    Path("/usr/local/dcmi"),
    Path("/usr/local/bin/npu-smi"),
    _DRIVER.parent,
    Path("/etc/ascend_install.info"),
)
"""Nodes and files that the pages of vLLM-Ascend and MindIE give a container beside the chips' own nodes; of the driver,
vLLM-Ascend's name two parts and MindIE's the whole folder."""


@dataclass(frozen=True)
class Ascend:
    """NPU chips, by their logic id."""

    name: str = "ascend"
    variable: str = "ASCEND_RT_VISIBLE_DEVICES"
    gres: tuple[str, ...] = ("npu", "ascend")

    def find(self) -> list[Device]:
        """See `DeviceKind.find`."""
        driver = _driver()
        return [replace(device, driver=driver) for device in parse(ask(["npu-smi", "info", "-m"]))]

    def topology(self, devices: Sequence[Device]) -> Topology:
        """See `DeviceKind.topology`."""
        return asked_topology(["npu-smi", "info", "-t", "topo"], devices)

    def environment(self, devices: Sequence[Device]) -> dict[str, str]:
        """See `DeviceKind.environment`."""
        return {self.variable: ",".join(device.index for device in devices)}

    def passthrough(self, devices: Sequence[Device]) -> Passthrough:
        """See `DeviceKind.passthrough`; a chip's node has the number of its logic id."""
        return Passthrough(
            nodes=(*(f"/dev/davinci{device.index}" for device in devices), *_NODES), mounts=_DRIVER_PATHS
        )

    def threads(self, cores: int, count: int) -> int:
        """See `DeviceKind.threads`."""
        return 1


def parse(text: str) -> list[Device]:
    """Devices from the tool's mapping table; chips without a logic id (the board's controller) are none.

    Ascend 950's table has no column for it: there it is the NPU's own number. Where the table has the chips' physical
    numbers, the topology calls them by these.
    """
    rows = [re.split(r"\s{2,}", line.strip()) for line in text.splitlines() if line.strip()]
    header = next((row for row in rows if "NPU ID" in row and "Chip Name" in row), [])
    devices = []
    for row in rows:
        chip = dict(zip(header, row, strict=False)) if len(row) == len(header) else {}
        npu_id, chip_id, name = (chip.get(column, "") for column in ("NPU ID", "Chip ID", "Chip Name"))
        logic_id = chip.get("Chip Logic ID", npu_id)
        if name != "Mcu" and all(re.fullmatch(r"[0-9]{1,5}", number) for number in (npu_id, chip_id, logic_id)):
            label = f"Phy-ID{chip['Chip Phy-ID']}" if "Chip Phy-ID" in chip else f"NPU{npu_id}"
            devices.append(Device(logic_id, key=device_key(npu_id, chip_id), name=name, label=label))
    return devices


def device_key(npu_id: str, chip_id: str) -> str:
    """`Device.key` of a chip, by the numbers that the tool gives it."""
    return f"ascend-{npu_id}-{chip_id}"


def _driver() -> str | None:
    found = re.search(r"^Version=(.+)$", _DRIVER.read_text(encoding="utf-8"), re.M) if _DRIVER.exists() else None
    return found.group(1).strip() if found else None


DEVICES.register("ascend", Ascend())
