"""Ascend NPUs, by `npu-smi`."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from servelab.devices import DEVICES, Device, ask, visible

_DRIVER = Path("/usr/local/Ascend/driver/version.info")
_DRIVER_PATHS = (
    "/usr/local/dcmi",
    "/usr/local/bin/npu-smi",
    "/usr/local/Ascend/driver/lib64",
    str(_DRIVER),
    "/etc/ascend_install.info",
)
"""What the documentation of vLLM-Ascend mounts into its container, beside the devices' nodes."""


@dataclass(frozen=True)
class Ascend:
    """NPU chips, by their logic id."""

    name: str = "ascend"
    apptainer_flags: tuple[str, ...] = tuple(part for path in _DRIVER_PATHS for part in ("--bind", f"{path}:{path}:ro"))

    def find(self) -> list[Device]:
        """See `DeviceKind.find`."""
        devices = visible(parse(ask(["npu-smi", "info", "-m"])), os.environ.get("ASCEND_RT_VISIBLE_DEVICES"))
        driver = _driver()
        return [replace(device, driver=driver) for device in devices]

    def environment(self, devices: Sequence[Device]) -> dict[str, str]:
        """See `DeviceKind.environment`."""
        return {"ASCEND_RT_VISIBLE_DEVICES": ",".join(device.index for device in devices)}

    def threads(self, cores: int) -> int:
        """See `DeviceKind.threads`."""
        return 1


def parse(text: str) -> list[Device]:
    """Devices from the tool's mapping table; chips without a logic id (the board's controller) are none."""
    header, *rows = (re.split(r"\s{2,}", line.strip()) for line in text.splitlines() if line.strip())
    devices = []
    for row in rows:
        chip = dict(zip(header, row, strict=False))
        logic_id = chip.get("Chip Logic ID", "-")
        if logic_id.isdigit():
            key = device_key(chip["NPU ID"], chip["Chip ID"])
            devices.append(Device(index=logic_id, key=key, name=chip["Chip Name"]))
    return devices


def device_key(npu_id: str, chip_id: str) -> str:
    """`Device.key` of a chip, by the numbers that the tool gives it."""
    return f"ascend-{npu_id}-{chip_id}"


def _driver() -> str | None:
    found = re.search(r"^Version=(.+)$", _DRIVER.read_text(encoding="utf-8"), re.M) if _DRIVER.exists() else None
    return found.group(1).strip() if found else None


DEVICES.register("ascend", Ascend())
