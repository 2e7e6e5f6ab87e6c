"""Telemetry of machine, accelerators and server while the load runs (`schemas.TELEMETRY`).

A source reads one interface: NVML, npu-smi, psutil, the server's own metrics. Each is one file that registers itself.
`servelab.measure.telemetry.Sampler` reads all of them about once a second, each in its own thread.
"""

from __future__ import annotations

import queue
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import ClassVar, NamedTuple

import pyarrow as pa

from servelab.core.registry import Registry
from servelab.core.yaml_file import read_shipped
from servelab.engines.adapters import Engine
from servelab.machine.devices import Device
from servelab.metrics.tables import schemas

_METRICS: dict[str, dict[str, str]] = read_shipped(Path(__file__).with_name("metrics.yaml"))


class Reading(NamedTuple):
    """One value of a metric."""

    metric: str
    value: float
    device: str | None = None
    """Index of the accelerator; None if the value is not of one."""


@dataclass(frozen=True)
class Watched:
    """The processes and devices that the sources observe."""

    devices: Sequence[Device]
    """The devices of this run."""
    engine: Engine
    servers: Callable[[], Sequence[tuple[str, int]]]
    """Returns base URL and process id of each running server."""
    elsewhere: int = 0
    """Number of the run's devices on other nodes: they are not read, so sums over all devices are not known."""
    cpus: frozenset[int] = frozenset()
    """CPUs that the server is pinned to; empty if it may use all that this process may."""


class TelemetrySource(ABC):
    """One source of metrics. One thread creates, reads and closes it; an exception only loses that reading."""

    name: ClassVar[str]
    """Its name in the table's column `source`."""
    metrics: ClassVar[Mapping[str, str]]
    """Its metrics: name → meaning, and how it is read; those of its name in `metrics.yaml`."""
    ticks: ClassVar[int] = 1
    """It is read on every `ticks`-th tick of the sampler: more than 1 if a reading is expensive."""

    def __init_subclass__(cls) -> None:
        cls.metrics = _METRICS.get(cls.name, {})

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


SOURCES: Registry[type[TelemetrySource]] = Registry("telemetry source")
SOURCES.load(__name__)


INTERVAL_S = 1.0
"""Time between two ticks."""
_WAIT_S = 3.0
"""Longest time that `sample_now` and the end wait for a source."""


class Sampler:
    """Context manager that reads every source that concerns the run, while the block runs."""

    def __init__(self, watched: Watched, reported: set[str] | None = None) -> None:
        """`reported` has the sources that were already reported as unreadable; the sampler adds to it."""
        self._watches = [_Watch(source, watched) for source in SOURCES if source.concerns(watched)]
        self._reported = set() if reported is None else reported
        self._started_at = 0.0

    def __enter__(self) -> Sampler:
        self._started_at = time.monotonic()
        for watch in self._watches:
            watch.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Ends the threads, and names each source that gave no reading; but not for a load that failed."""
        for watch in self._watches:
            watch.asked.put(None)
        deadline = time.monotonic() + _WAIT_S
        for watch in self._watches:
            watch.join(max(0.0, deadline - time.monotonic()))
            if watch.error and not watch.samples and kind is None and watch.source not in self._reported:
                self._reported.add(watch.source)
                print(f"telemetry: {watch.source} cannot be read: {watch.error}", file=sys.stderr, flush=True)

    def sample_now(self) -> None:
        """Reads every source now; returns when all have been read, or after 3 s."""
        deadline = time.monotonic() + _WAIT_S
        asked = [threading.Event() for _ in self._watches]
        for watch, done in zip(self._watches, asked, strict=True):
            watch.asked.put(done)
        for done in asked:
            done.wait(max(0.0, deadline - time.monotonic()))

    def table(self, number: int, origin: float | None = None) -> pa.Table:
        """All readings as those of round `number`, of `schemas.TELEMETRY`, in order of time.

        `origin` is the round's time 0 on the system's monotonic clock, in seconds; without it, the block's start.
        """
        start = self._started_at if origin is None else origin
        rows = [
            (number, stamp - start, watch.source, device, metric, value)
            for watch in self._watches
            for stamp, readings in list(watch.samples)
            for metric, value, device in readings
        ]
        rows.sort(key=lambda row: row[1])
        return pa.Table.from_pylist(
            [dict(zip(schemas.TELEMETRY.names, row, strict=True)) for row in rows], schemas.TELEMETRY
        )


class _Watch(threading.Thread):
    """The thread of one source, with its readings."""

    def __init__(self, make: type[TelemetrySource], watched: Watched) -> None:
        super().__init__(name=f"telemetry {make.name}", daemon=True)
        self.source = make.name
        self.samples: list[tuple[float, list[Reading]]] = []
        """Time of each reading, in seconds of the monotonic clock, and its values."""
        self.error = ""
        """Why the last reading that failed did."""
        self.asked: queue.SimpleQueue[threading.Event | None] = queue.SimpleQueue()
        """Events to set after a reading; None ends the thread."""
        self._make, self._watched = make, watched

    def run(self) -> None:
        """Reads when asked, and every `ticks` seconds; opens the source at the first reading."""
        source: TelemetrySource | None = None
        while True:
            try:
                done = self.asked.get(timeout=INTERVAL_S * self._make.ticks)
                if done is None:
                    break
            except queue.Empty:
                done = threading.Event()
            try:
                source = source or self._make(self._watched)
                stamp = time.monotonic()
                if readings := list(source.read()):
                    self.samples.append((stamp, readings))
            except Exception as error:
                self.error = str(error) or type(error).__name__
            done.set()
        if source is not None:
            source.close()
