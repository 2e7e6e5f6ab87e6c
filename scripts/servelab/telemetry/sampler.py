"""The sampler: reads every source about once a second while a run is measured, and never disturbs it.

Each source has a thread of its own, so that a server that answers slowly delays nobody. What a source cannot tell is
said once on standard error and left out.
"""

from __future__ import annotations

import bisect
import queue
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType

import pyarrow as pa

from servelab import schemas
from servelab.devices import Device
from servelab.engines import Engine
from servelab.telemetry import SOURCES, Reading, Source, Watched

INTERVAL_S = 1.0
"""From one tick to the next."""
_WAIT_S = 3.0
"""Most that `sample_now` and the end wait for a source."""


class Sampler:
    """Reads every source that concerns the run, from the first `round` until the block ends."""

    def __init__(
        self,
        devices: Sequence[Device],
        server: Callable[[], tuple[str, int] | None],
        engine: Engine,
        complained: set[str] | None = None,
    ) -> None:
        """`server` gives base URL and process id of the server that runs now, or None; other threads call it.

        `complained` names the sources that have been complained of before, and is added to.
        """
        watched = Watched(devices, engine, server)
        complained = set() if complained is None else complained
        self._watches = [_Watch(source, watched, complained) for source in SOURCES if source.concerns(watched)]
        self._marks: list[tuple[float, int]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="telemetry", daemon=True)

    def __enter__(self) -> Sampler:
        for watch in self._watches:
            watch.start()
        self._thread.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        for watch in self._watches:
            watch.end()
        deadline = time.monotonic() + _WAIT_S
        for watch in self._watches:
            watch.join(max(0.0, deadline - time.monotonic()))

    def round(self, number: int) -> None:
        """A round begins: what is read from now on is of it."""
        self._marks.append((time.monotonic(), number))

    def sample_now(self) -> None:
        """Reads every source at once and returns when they have told, or after 3 s."""
        deadline = time.monotonic() + _WAIT_S
        for told in [watch.ask() for watch in self._watches]:
            told.wait(max(0.0, deadline - time.monotonic()))

    def table(self, origins: Mapping[int, float]) -> pa.Table:
        """All readings of all rounds, of `schemas.TELEMETRY`, in order of time.

        `origins` gives each round's zero on the system's monotonic clock, in seconds; a round without one begins at
        its mark.
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

    def _run(self) -> None:
        tick = 0
        while not self._stop.wait(INTERVAL_S):
            if self._marks:
                for watch in self._watches:
                    watch.tick(tick)
                tick += 1


class _Watch(threading.Thread):
    """One source in its thread, with what it has told."""

    def __init__(self, make: type[Source], watched: Watched, complained: set[str]) -> None:
        super().__init__(name=f"telemetry {make.name}", daemon=True)
        self.source = make.name
        self.samples: list[tuple[float, list[Reading]]] = []
        """When it was asked, by the monotonic clock in seconds, and what it told."""
        self._make, self._watched = make, watched
        self._asked: queue.SimpleQueue[threading.Event | None] = queue.SimpleQueue()
        self._last = threading.Event()
        self._last.set()
        self._complained = complained

    def tick(self, number: int) -> None:
        """Asks it if it is due, and not still busy."""
        if number % self._make.ticks == 0 and self._last.is_set():
            self._last = self.ask()

    def ask(self) -> threading.Event:
        """Asks it; the event is set once it has told."""
        told = threading.Event()
        self._asked.put(told)
        return told

    def end(self) -> None:
        """Ends the thread after what was asked."""
        self._asked.put(None)

    def run(self) -> None:
        """Opens the source when it is first asked."""
        source: Source | None = None
        while told := self._asked.get():
            try:
                source = source or self._make(self._watched)
                stamp = time.monotonic()
                if readings := list(source.read()):
                    self.samples.append((stamp, readings))
            except Exception as error:
                self._complain(error)
            told.set()
        if source is not None:
            source.close()

    def _complain(self, error: Exception) -> None:
        if self.source not in self._complained:
            said = str(error) or type(error).__name__
            print(f"telemetry: {self.source} is left out where it fails: {said}", file=sys.stderr, flush=True)
        self._complained.add(self.source)
