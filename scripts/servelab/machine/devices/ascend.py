"""Ascend NPUs, read from `npu-smi`."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from servelab.machine.devices import (
    DEVICES,
    Device,
    DeviceKind,
    DeviceSettings,
    Passthrough,
    answer,
    ask,
    number_or_none,
    value_or_none,
)

_DRIVER = Path("/usr/local/Ascend/driver/version.info")
_NODES = ("/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc")
_DRIVER_PATHS = (
    Path("/usr/local/dcmi"),
    Path("/usr/local/bin/npu-smi"),
    _DRIVER.parent,
    Path("/etc/ascend_install.info"),
)
"""Nodes and files that the pages of vLLM-Ascend and MindIE pass to a container, besides the chips' own nodes. For the
driver, vLLM-Ascend's page names two parts and MindIE's the whole folder."""

_ABOUT_A_CARD = ("board", "common", "ecc-enable")
_ECC = {"True": "Enabled", "False": "Disabled"}
_TOOLKITS = (Path("/usr/local/Ascend/cann"), Path("/usr/local/Ascend/ascend-toolkit/latest"))
"""Where CANN is installed by default, in releases from 8.5 on and before."""


class Ascend(DeviceKind):
    """NPU chips, identified by their logic id."""

    name = "ascend"
    variable = "ASCEND_RT_VISIBLE_DEVICES"
    gres = ("npu", "ascend")
    words = ("ascend", "huawei", "npu")

    def find(self) -> list[Device]:
        driver = _version(_DRIVER)
        return [replace(device, driver=driver) for device in parse(ask(["npu-smi", "info", "-m"]))]

    def described(self, devices: Sequence[Device]) -> list[Device]:
        """See `DeviceKind.described`; no release reports a power limit."""
        cann = _cann()
        found = []
        for device in devices:
            card = device.key.split("-")[1]
            board, common, ecc = (answer(["npu-smi", "info", "-t", what, "-i", card]) for what in _ABOUT_A_CARD)
            settings = DeviceSettings(
                runtime=cann and f"CANN {cann}",
                ecc_mode=_ECC.get(_value(ecc, "HBM ECC-Enable Status") or ""),
                clock_core_mhz=number_or_none(_value(common, "Aicore Freq(MHZ)")),
            )
            driver = device.driver or _value(board, "Software Version")
            found.append(replace(device, driver=driver, settings=settings))
        return found

    def environment(self, devices: Sequence[Device]) -> dict[str, str]:
        return {self.variable: ",".join(device.index for device in devices)}

    def passthrough(self, devices: Sequence[Device]) -> Passthrough:
        """See `DeviceKind.passthrough`; a chip's node has the number of its logic id."""
        return Passthrough(nodes=(*(f"/dev/davinci{each.index}" for each in devices), *_NODES), mounts=_DRIVER_PATHS)


def parse(text: str) -> list[Device]:
    """Devices from the tool's mapping table; a chip without a logic id is the board's controller and left out.

    The table of Ascend 950 has no column for the logic id: there it equals the NPU's number.
    """
    rows = [re.split(r"\s{2,}", line.strip()) for line in text.splitlines() if line.strip()]
    header = next((row for row in rows if "NPU ID" in row and "Chip Name" in row), [])
    devices = []
    for row in rows:
        chip = dict(zip(header, row, strict=False)) if len(row) == len(header) else {}
        npu_id, chip_id, name = (chip.get(column, "") for column in ("NPU ID", "Chip ID", "Chip Name"))
        logic_id = chip.get("Chip Logic ID", npu_id)
        if name != "Mcu" and all(re.fullmatch(r"[0-9]{1,5}", number) for number in (npu_id, chip_id, logic_id)):
            devices.append(Device(logic_id, key=device_key(npu_id, chip_id), name=name))
    return devices


def device_key(npu_id: str, chip_id: str) -> str:
    """`Device.key` of a chip, from its numbers in the tool's table."""
    return f"ascend-{npu_id}-{chip_id}"


def _cann() -> str | None:
    """The version of the host's CANN: that of this environment, else of a default folder; None without one."""
    given = [Path(folder) for name in ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME") if (folder := os.environ.get(name))]
    files = (folder / f"{platform.machine()}-linux/ascend_toolkit_install.info" for folder in [*given, *_TOOLKITS])
    return next((version for file in files if (version := _version(file))), None)


def _version(file: Path) -> str | None:
    """The version in a file with a line `Version=…`; None if there is none."""
    try:
        found = re.search(r"^version=(.+)$", file.read_text(encoding="utf-8"), re.MULTILINE | re.IGNORECASE)
    except (OSError, UnicodeDecodeError):
        return None
    return found.group(1).strip() if found else None


def _value(text: str, key: str) -> str | None:
    """The value of the first line `key : value`; chips of one card have the same in the keys that are read here."""
    found = re.search(rf"^\s*{re.escape(key)}\s*:[ \t]*(.*)$", text, re.MULTILINE)
    return value_or_none(found.group(1)) if found else None


DEVICES.register("ascend", Ascend())
