"""Which runs are complete: measured, with the files of their seal, and not to be measured again."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import psutil

from servelab.core.files import write_text
from servelab.core.result_lock import claim
from servelab.core.run_spec import DISTURBED, FAILED, NOTHING
from servelab.core.seal import IMPORTED, STATUS
from servelab.measure.run_folder import is_empty, move_aside, why_broken

_QUIETER = 0.5
"""The machine is quieter if others use at most this part of what they used while a run was disturbed."""
_SAMPLE_S = 0.5


class Repeats:
    """Runs that this invocation measures again, each once.

    These are runs that the user chooses, runs that were disturbed if the machine is quieter now, and with a run of a
    pair the other one: they are compared only if one job measured both. A run that was imported is left alone.
    """

    def __init__(
        self,
        chosen: Sequence[str] = (),
        partners: Callable[[str], Iterable[str]] = lambda run_id: (),
        others_percent: Callable[[], float] | None = None,
    ) -> None:
        """`partners` are the runs of a run's pair, `others_percent` is the share of the CPUs in use now."""
        self._chosen, self._partners = chosen, partners
        self._look = others_percent or (lambda: psutil.cpu_percent(_SAMPLE_S))
        self._began = datetime.now(UTC).isoformat(timespec="seconds")
        self.repeated: set[str] = set()
        """Runs that were found to be measured again."""

    def why(self, folder: Path) -> str | None:
        """Why the run in a folder is measured again, as one line; None if it is not."""
        status = _status_of(folder)
        if status is None or status["finished_at"] >= self._began or NOTHING in self._chosen:
            return None
        why = self._own(folder.name, status)
        for partner in () if why else self._partners(folder.name):
            other = _status_of(folder.with_name(partner))
            is_old = other is not None and other["finished_at"] < self._began
            if partner in self.repeated or (is_old and other and self._own(partner, other)):
                why = f"run {folder.name} is the other one of a pair with {partner}"
        if why:
            self.repeated.add(folder.name)
        return why

    def _own(self, run_id: str, status: dict[str, Any]) -> str | None:
        if any(run_id.startswith(word) for word in self._chosen if word not in (DISTURBED, FAILED)):
            return f"run {run_id} was chosen"
        if FAILED in self._chosen and status["outcome"] == "failed":
            return f"run {run_id} failed, {status['reason']}"
        if not (what := status.get("disturbed")):
            return None
        before = status.get("others_percent")
        if DISTURBED in self._chosen or before is None or self._now <= _QUIETER * before:
            return f"run {run_id} was disturbed, {what}"
        return None

    @cached_property
    def _now(self) -> float:
        return self._look()


def _status_of(folder: Path) -> dict[str, Any] | None:
    """The status of a run that was measured here; None without one."""
    try:
        status = json.loads((folder / STATUS).read_bytes())
    except (OSError, ValueError):
        return None
    return status if isinstance(status, dict) and not (folder / IMPORTED).exists() else None


class OtherPlaces(Protocol):
    """Runs that other places have; `servelab.archive.restore` has them."""

    def has(self, run_id: str) -> bool:
        """Whether a place has the run."""

    def fetch(self, run_id: str) -> bool:
        """Puts the run into this folder; False if it cannot be used."""


class SealedRuns:
    """The runs in a folder.

    `marks` is a folder for files that start the job of a broken run, which `report` gets a line for. A missing run that
    is `elsewhere` counts as complete; it is fetched if `is_running()`, and in a dry run it stays where it is. Those of
    `repeats` count as missing; they are set aside if `is_running()`.
    """

    def __init__(
        self,
        runs: Path,
        marks: Path = Path(".snakemake/broken"),
        report: Callable[[str], None] = lambda line: None,
        *,
        elsewhere: OtherPlaces | None = None,
        is_running: Callable[[], bool] = lambda: True,
        repeats: Repeats | None = None,
    ) -> None:
        self._runs, self._marks, self._report = runs, marks, report
        self._elsewhere, self._is_running, self._repeats = elsewhere, is_running, repeats
        self._sound: set[str] = set()
        """Runs of this process: one that was complete is not looked at again."""
        self._broken: dict[str, int] = {}
        """Runs that do not count, and the time of what is in their folders."""

    def is_complete(self, run_id: str) -> bool:
        """Whether a run was measured and its files are those of its seal."""
        if run_id in self._sound:
            return True
        folder = self._runs / run_id
        if self._repeats and (why := self._repeats.why(folder)):
            self._repeat(folder, why)
            return False
        if not _is_there(folder):
            is_repeated = self._repeats is not None and run_id in self._repeats.repeated
            if is_repeated or self._elsewhere is None or not self._elsewhere.has(run_id):
                return False
            if not self._is_running():
                return True
            if not self._elsewhere.fetch(run_id):
                return False
        elif self._broken.get(run_id) == _newest_ns(folder):
            return False
        if why := why_broken(folder):
            self._broken[run_id] = _newest_ns(folder)
            self._report(f"{why}; it is set aside and measured again")
            return False
        self._sound.add(run_id)
        return True

    def _repeat(self, folder: Path, why: str) -> None:
        if self._is_running():
            with claim(folder):
                move_aside(folder, f"{why}; it is measured again")
        elif folder.name not in self._broken:
            self._broken[folder.name] = _newest_ns(folder)
            self._report(f"{why}; it is set aside and measured again")

    def is_here(self, run_id: str) -> bool:
        """Whether a complete run is in the folder, rather than elsewhere until it is fetched."""
        return self._elsewhere is None or run_id in self._sound

    def marks(self, run_id: str) -> list[str]:
        """A file that is newer than what is left of a run, if it is broken: then Snakemake makes it again."""
        if run_id not in self._broken:
            return []
        mark, folder = self._marks / run_id, self._runs / run_id
        write_text(mark, f"broken at {time.time_ns()}\n")  # another content each time: Snakemake compares it
        newest_ns = _newest_ns(folder) if _is_there(folder) else 0
        if newest_ns >= mark.stat().st_mtime_ns:
            os.utime(mark, ns=(newest_ns + 10**9, newest_ns + 10**9))
        return [str(mark)]


def _is_there(folder: Path) -> bool:
    return folder.exists() and not is_empty(folder)


def _newest_ns(folder: Path) -> int:
    return max(path.lstat().st_mtime_ns for path in [folder, *folder.glob("*")])
