"""Telemetry of machine, accelerators and server while the load runs (`schemas.TELEMETRY`).

A source reads one interface: NVML, npu-smi, psutil, the server's own metrics. Each is one file that registers itself.
`servelab.measure.telemetry.Sampler` reads all of them about once a second, each in its own thread.
"""

from __future__ import annotations

import bisect
import queue
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import ClassVar, NamedTuple

import pyarrow as pa

from servelab.core.registry import Registry
from servelab.engines.adapters import Engine
from servelab.machine.devices import Device
from servelab.metrics.tables import schemas


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
    cpus: frozenset[int] = frozenset()
    """CPUs that the server is pinned to; empty if it may use all that this process may."""


class TelemetrySource(ABC):
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


SOURCES: Registry[type[TelemetrySource]] = Registry("telemetry source")
SOURCES.load(__name__)


INTERVAL_S = 1.0
"""Time between two ticks."""
_WAIT_S = 3.0
"""Longest time that `sample_now` and the end wait for a source."""


class Sampler:
    """Context manager that reads every source that concerns the run, from the first `round` until the block ends."""

    def __init__(
        self,
        devices: Sequence[Device],
        server: Callable[[], tuple[str, int] | None],
        engine: Engine,
        reported_failures: set[str] | None = None,
        elsewhere: int = 0,
        cpus: frozenset[int] = frozenset(),
    ) -> None:
        """`server` returns base URL and process id of the running server, or None; other threads call it.

        `reported_failures` holds the sources whose failure has been printed, and the sampler adds to it. `elsewhere` is
        the number of the run's devices on other nodes; `cpus` are those that the server is pinned to.
        """
        watched = Watched(devices, engine, server, elsewhere, cpus)
        reported = set() if reported_failures is None else reported_failures
        self._watches = [_Watch(source, watched, reported) for source in SOURCES if source.concerns(watched)]
        self._marks: list[tuple[float, int]] = []

    def __enter__(self) -> Sampler:
        for watch in self._watches:
            watch.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        for watch in self._watches:
            watch.end()
        deadline = time.monotonic() + _WAIT_S
        for watch in self._watches:
            watch.join(max(0.0, deadline - time.monotonic()))

    def round(self, number: int) -> None:
        """Starts a round: readings from now on belong to it, and begin with the first."""
        self._marks.append((time.monotonic(), number))
        for watch in self._watches:
            watch.is_due.set()

    def sample_now(self) -> None:
        """Reads every source now; returns when all have been read, or after 3 s."""
        deadline = time.monotonic() + _WAIT_S
        for done in [watch.ask() for watch in self._watches]:
            done.wait(max(0.0, deadline - time.monotonic()))

    def table(self, origins: Mapping[int, float]) -> pa.Table:
        """All readings of all rounds, of `schemas.TELEMETRY`, in order of time.

        `origins` gives each round's time 0 on the system's monotonic clock, in seconds; without one, a round starts
        when `round` was called.
        """
        marks = list(self._marks)
        starts = [start for start, _ in marks]
        rows = []
        for watch in self._watches:
            for stamp, readings in list(watch.samples):
                place = bisect.bisect_right(starts, stamp) - 1
                if place < 0:
                    continue
                start, number = marks[place]
                time_s = stamp - origins.get(number, start)
                rows += [(number, time_s, watch.source, device, metric, value) for metric, value, device in readings]
        rows.sort(key=lambda row: (row[0], row[1]))
        columns = zip(*rows, strict=True) if rows else [()] * len(schemas.TELEMETRY)
        return pa.Table.from_arrays(
            [pa.array(column, field.type) for column, field in zip(columns, schemas.TELEMETRY, strict=True)],
            schema=schemas.TELEMETRY,
        )


class _Watch(threading.Thread):
    """The thread of one source, with its readings."""

    def __init__(self, make: type[TelemetrySource], watched: Watched, reported_failures: set[str]) -> None:
        super().__init__(name=f"telemetry {make.name}", daemon=True)
        self.source = make.name
        self.samples: list[tuple[float, list[Reading]]] = []
        """Time of each reading, in seconds of the monotonic clock, and its values."""
        self._make, self._watched = make, watched
        self._asked: queue.SimpleQueue[threading.Event | None] = queue.SimpleQueue()
        self.is_due = threading.Event()
        """Set once a round has begun: then the source is read regularly."""
        self._reported_failures = reported_failures

    def ask(self) -> threading.Event:
        """Asks for a reading; the event is set when it is done."""
        done = threading.Event()
        self._asked.put(done)
        return done

    def end(self) -> None:
        """Ends the thread after the readings that were asked for."""
        self._asked.put(None)

    def run(self) -> None:
        """Reads when asked, and every `ticks` seconds of a round; opens the source at the first reading."""
        source: TelemetrySource | None = None
        while True:
            try:
                done = self._asked.get(timeout=INTERVAL_S * self._make.ticks)
                if done is None:
                    break
            except queue.Empty:
                if not self.is_due.is_set():
                    continue
                done = None
            try:
                source = source or self._make(self._watched)
                stamp = time.monotonic()
                if readings := list(source.read()):
                    self.samples.append((stamp, readings))
            except Exception as error:
                self._report_failure(error)
            if done is not None:
                done.set()
        if source is not None:
            source.close()

    def _report_failure(self, error: Exception) -> None:
        if self.source not in self._reported_failures:
            text = str(error) or type(error).__name__
            print(f"telemetry: a reading of {self.source} failed and is left out: {text}", file=sys.stderr, flush=True)
        self._reported_failures.add(self.source)
