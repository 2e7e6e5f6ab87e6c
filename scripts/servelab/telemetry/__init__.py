"""Telemetry: what machine, accelerators and server did while the load ran (`schemas.TELEMETRY`).

A source reads one thing that can tell: NVML, npu-smi, psutil, the server's own metrics. Each is one file that registers
itself. `servelab.telemetry.sampler.Sampler` reads them all about once a second, each in a thread of its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from servelab.devices import Device
from servelab.engines import Engine
from servelab.registry import Registry


class Reading(NamedTuple):
    """One figure."""

    metric: str
    value: float
    device: str | None = None
    """Index of the accelerator; None where the figure is not of one."""


@dataclass(frozen=True)
class Watched:
    """What is watched."""

    devices: Sequence[Device]
    """Those of this run."""
    engine: Engine
    server: Callable[[], tuple[str, int] | None]
    """Base URL and process id of the server that runs now; None where none does."""


class Source(ABC):
    """Something that can tell. Made, read and closed in one thread; an exception from it is a reading left out."""

    name: ClassVar[str]
    """As in the table's column `source`."""
    metrics: ClassVar[Mapping[str, str]]
    """What it tells: metric → what it is and how it is taken."""
    ticks: ClassVar[int] = 1
    """It is read at every so many ticks of the sampler: more than one where asking is dear."""

    @classmethod
    def concerns(cls, watched: Watched) -> bool:
        """Whether it could tell anything about what is watched."""
        return True

    @abstractmethod
    def __init__(self, watched: Watched) -> None: ...

    @abstractmethod
    def read(self) -> Iterable[Reading]:
        """What it tells now, or since it was last read where a metric says so. It must end within a few seconds."""

    def close(self) -> None:
        """Gives back what it holds."""
        return


SOURCES: Registry[type[Source]] = Registry("telemetry source")
SOURCES.load(__name__)
