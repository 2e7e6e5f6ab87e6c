"""Ascend NPUs, read from the table of `npu-smi info`: one call reports all chips."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from servelab.machine.devices import ask
from servelab.machine.devices.ascend import device_key
from servelab.measure.telemetry import SOURCES, Reading, TelemetrySource, Watched

_TIMEOUT_S = 10.0
_MIB = 1 << 20
_NUMBER = re.compile(r"\d+(\.\d+)?")


class NpuSmi(TelemetrySource):
    """Read only every 5 s: a call may take a second, and more on a machine with many chips."""

    name = "npu-smi"
    ticks = 5

    @classmethod
    def concerns(cls, watched: Watched) -> bool:
        return bool(_npus(watched))

    def __init__(self, watched: Watched) -> None:
        self._index_of, self._elsewhere = _npus(watched), watched.elsewhere

    def read(self) -> Iterator[Reading]:
        yield Reading("devices", len(self._index_of) + self._elsewhere)
        for key, figures in parse(ask(["npu-smi", "info"], timeout_s=_TIMEOUT_S)).items():
            if key in self._index_of:
                for metric, value in figures.items():
                    yield Reading(metric, value, self._index_of[key])


def _npus(watched: Watched) -> dict[str, str]:
    """Key of each NPU → its index."""
    return {device.key: device.index for device in watched.devices if device.key.startswith("ascend-")}


def parse(text: str) -> dict[str, dict[str, float]]:
    """Metrics of every chip, by its device's key.

    A chip has two rows of three cells: `NPU Name | Health | Power Temp Hugepages`, then
    `Chip [Phy-ID] | Bus-Id | AICore Memory / total [HBM / total]`. A power of `-` means that the row of the NPU's
    first chip gives the power of all its chips.
    """
    chips: dict[str, dict[str, float]] = {}
    shared: list[str] = []
    rows = [[cell.strip() for cell in line.strip("| \n").split("|")] for line in text.splitlines() if "|" in line]
    for first, second in itertools.pairwise(rows):
        npu, chip = first[0].split(), second[0].split()
        if len(first) != 3 or len(second) != 3 or not _is_chip(npu, chip, second[1]):
            continue
        power, temperature = first[2].split()[:2]
        utilization, *memory = re.findall(r"\d+", second[2]) or [""]
        figures = {"power_w": power, "temperature_c": temperature, "npu_utilization_percent": utilization}
        chips[device_key(npu[0], chip[0])] = {
            **{metric: float(figure) for metric, figure in figures.items() if _NUMBER.fullmatch(figure)},
            **({"memory_used_bytes": float(memory[-2]) * _MIB} if len(memory) in (2, 4) else {}),
        }
        if power == "-":
            shared.append(npu[0])
    for npu_id in shared:
        for key, figures_of in chips.items():
            if key.startswith(device_key(npu_id, "")):
                figures_of.pop("power_w", None)
    return chips


def _is_chip(npu: list[str], chip: list[str], bus_id: str) -> bool:
    """Whether two rows describe a chip: a number and a name, then one or two numbers and a bus address."""
    named = len(npu) == 2 and npu[0].isdigit()
    return named and 1 <= len(chip) <= 2 and all(c.isdigit() for c in chip) and ("." in bus_id or bus_id == "NA")


SOURCES.register(NpuSmi.name, NpuSmi)
