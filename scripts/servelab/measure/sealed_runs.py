"""Which runs are complete: the files of each are compared with its seal before a workflow plans its jobs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from servelab.core.files import write_text
from servelab.measure.run_folder import is_empty, why_not_used


class OtherPlaces(Protocol):
    """Runs that other places have; `servelab.archive.shared_runs` has them."""

    def has(self, run_id: str) -> bool:
        """Whether a place has the run."""

    def fetch(self, run_id: str) -> bool:
        """Puts the run into this folder; False if it cannot be used."""


class SealedRuns:
    """The runs in a folder.

    `marks` is a folder for files that start the job of a broken run, which `report` gets a line for. Without
    `use_imported`, a run that was restored from an archive counts as broken. A missing run that is `elsewhere` counts
    as complete; it is fetched if `is_running()`, and in a dry run it stays where it is.
    """

    def __init__(
        self,
        runs: Path,
        marks: Path = Path(".snakemake/broken"),
        report: Callable[[str], None] = lambda line: None,
        *,
        use_imported: bool = True,
        elsewhere: OtherPlaces | None = None,
        is_running: Callable[[], bool] = lambda: True,
    ) -> None:
        self._runs, self._marks, self._report, self._use_imported = runs, marks, report, use_imported
        self._elsewhere, self._is_running = elsewhere, is_running
        self._sound: set[str] = set()
        """Runs of this process: one that was complete is not looked at again."""
        self._broken: dict[str, int] = {}
        """Broken runs, and the time of what is in their folders."""

    def is_complete(self, run_id: str) -> bool:
        """Whether a run was measured and its files are those of its seal."""
        if run_id in self._sound:
            return True
        folder = self._runs / run_id
        if not _is_there(folder):
            if self._elsewhere is None or not self._elsewhere.has(run_id):
                return False
            if not self._is_running():
                return True
            if not self._elsewhere.fetch(run_id):
                return False
        elif self._broken.get(run_id) == _newest_ns(folder):
            return False
        if why := why_not_used(folder, use_imported=self._use_imported):
            self._broken[run_id] = _newest_ns(folder)
            self._report(f"{why}; it is set aside and measured again")
            return False
        self._sound.add(run_id)
        return True

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
