"""Energy of the CPU packages, read from the kernel's powercap interface (RAPL, on Intel and AMD processors)."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from servelab.measure.telemetry import SOURCES, Reading, TelemetrySource, Watched

_POWERCAP = Path("/sys/class/powercap")
_MICRO = 1e-6


class Rapl(TelemetrySource):
    """Only for a run on CPUs, and only if this process may read every package: on bare metal, often as root."""

    name = "rapl"
    metrics: ClassVar = {
        "devices": "Number of devices of this run, so that a device without readings is noticed",
        "energy_j_total": "Energy of all CPU packages since the round's first reading, without memory modules",
    }

    @classmethod
    def concerns(cls, watched: Watched) -> bool:
        """See `TelemetrySource.concerns`."""
        counters = _counters()
        return any(device.key == "cpu" for device in watched.devices) and bool(counters) and _readable(counters)

    def __init__(self, watched: Watched) -> None:
        self._index = next(device.index for device in watched.devices if device.key == "cpu")
        self._last = {counter: _number(counter) for counter in _counters()}
        self._range = {counter: _number(counter.with_name("max_energy_range_uj")) for counter in self._last}
        self._used_uj = 0

    def read(self) -> list[Reading]:
        """See `TelemetrySource.read`; a counter wraps to 0 after its range, which takes at least a minute."""
        for counter, before in self._last.items():
            now = _number(counter)
            self._used_uj += (now - before) % (self._range[counter] + 1)
            self._last[counter] = now
        return [Reading("devices", 1), Reading("energy_j_total", self._used_uj * _MICRO, self._index)]


def _counters() -> list[Path]:
    """One counter per package; domains within a package have two numbers in their name."""
    return sorted(zone / "energy_uj" for zone in _POWERCAP.glob("intel-rapl:*") if zone.name.count(":") == 1)


def _readable(counters: list[Path]) -> bool:
    try:
        return all(_number(counter) >= 0 for counter in counters)
    except OSError:
        return False


def _number(path: Path) -> int:
    return int(path.read_text(encoding="ascii"))


SOURCES.register(Rapl.name, Rapl)
