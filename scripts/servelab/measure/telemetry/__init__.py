"""Telemetry of machine, accelerators and server while the load runs (`schemas.TELEMETRY`).

A source reads one interface: NVML, npu-smi, psutil, the server's own metrics. Each is one file that registers itself.
`servelab.measure.telemetry.sampler.Sampler` reads all of them about once a second, each in its own thread.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from servelab.core.registry import Registry
from servelab.engines.adapters import Engine
from servelab.machine.devices import Device


class Reading(NamedTuple):
    """One value of a metric."""

    metric: str
    value: float
    device: str | None = None
    """Index of the accelerator; None if the value is not of one."""


@dataclass(frozen=True)
class Watched:
    """What the sources observe."""

    devices: Sequence[Device]
    """The devices of this run."""
    engine: Engine
    server: Callable[[], tuple[str, int] | None]
    """Returns base URL and process id of the running server; None if none runs."""
    elsewhere: int = 0
    """Number of the run's devices on other nodes: they are not read, so sums over all devices are not known."""


class Source(ABC):
    """One source of metrics. One thread creates, reads and closes it; an exception only loses that reading."""

    name: ClassVar[str]
    """Its name in the table's column `source`."""
    metrics: ClassVar[Mapping[str, str]]
    """What it reports: metric → what it is and how it is read."""
    ticks: ClassVar[int] = 1
    """It is read on every `ticks`-th tick of the sampler: more than 1 if a reading is expensive."""

    @classmethod
    def concerns(cls, watched: Watched) -> bool:
        """Whether it can report anything about this run."""
        return True

    @abstractmethod
    def __init__(self, watched: Watched) -> None: ...

    @abstractmethod
    def read(self) -> Iterable[Reading]:
        """Reads all metrics: their value now, or since the last reading if the metric says so. Takes a few seconds at
        most.
        """

    def close(self) -> None:
        """Releases its resources."""
        return


SOURCES: Registry[type[Source]] = Registry("telemetry source")
SOURCES.load(__name__)
