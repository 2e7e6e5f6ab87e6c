"""Which of thousands of runs are complete, as a workflow asks before it plans its jobs.

The digests of a run's files are compared with its seal once. After that only the files' sizes and times are looked at:
10,000 runs take a quarter of a second. What was compared is kept in a file, a line per run.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from servelab.core.errors import ServelabError
from servelab.core.files import write_text
from servelab.core.seal import IMPORTED
from servelab.measure.run_folder import why_not_used


class OtherPlaces(Protocol):
    """Runs that other places have; `servelab.archive.shared_runs` has them."""

    def has(self, run_id: str) -> bool:
        """Whether a place has the run."""

    def fetch(self, run_id: str) -> bool:
        """Puts the run into this folder; False if it cannot be used."""


class SealedRuns:
    """The runs in a folder.

    `kept` is a folder for what was compared; None keeps nothing. `report` gets one line per broken run. Without
    `use_imported`, a run that was restored from an archive counts as broken. A missing run that is `elsewhere` counts
    as complete; it is fetched if `is_running()`, and in a dry run it stays where it is.
    """

    def __init__(
        self,
        runs: Path,
        kept: Path | None = None,
        report: Callable[[str], None] = lambda line: None,
        *,
        use_imported: bool = True,
        elsewhere: OtherPlaces | None = None,
        is_running: Callable[[], bool] = lambda: True,
    ) -> None:
        self._runs, self._kept, self._report, self._use_imported = str(runs), kept, report, use_imported
        self._elsewhere, self._is_running = elsewhere, is_running
        self._sound: set[str] = set()
        """Those of this process: a run that was complete is not looked at again."""
        self._known = _read(kept / _SOUND) if kept else {}
        self._broken: dict[str, str] = {}

    def is_complete(self, run_id: str) -> bool:
        """Whether a run was measured and its files are those of its seal; `ServelabError` if they cannot be read."""
        if run_id in self._sound:
            return True
        if (found := _looks(f"{self._runs}/{run_id}")) is None and self._elsewhere and self._elsewhere.has(run_id):
            if not self._is_running():
                return True
            if self._elsewhere.fetch(run_id):
                found = _looks(f"{self._runs}/{run_id}")
        if found is None or self._broken.get(run_id) == found:
            return False
        is_known = self._known.get(run_id) == found
        if not is_known or (not self._use_imported and Path(self._runs, run_id, IMPORTED).exists()):
            if why := why_not_used(Path(self._runs, run_id), use_imported=self._use_imported):
                self._broken[run_id] = found
                self._report(f"{why}; it is set aside and measured again")
                return False
            self._keep(run_id, found)
        self._sound.add(run_id)
        return True

    def is_here(self, run_id: str) -> bool:
        """Whether a complete run is in the folder, rather than elsewhere until it is fetched."""
        return self._elsewhere is None or run_id in self._sound

    def marks(self, run_id: str) -> list[str]:
        """A file that is newer than what is left of a run, if it is broken: then Snakemake makes it again."""
        if run_id not in self._broken or self._kept is None:
            return []
        mark = self._kept / run_id
        write_text(mark, f"broken at {time.time_ns()}\n")  # another content each time: Snakemake compares it
        left_ns = max((path.lstat().st_mtime_ns for path in Path(self._runs, run_id).iterdir()), default=0)
        if left_ns >= mark.stat().st_mtime_ns:
            os.utime(mark, ns=(left_ns + 10**9, left_ns + 10**9))
        return [str(mark)]

    def _keep(self, run_id: str, found: str) -> None:
        if self._kept is not None:
            with suppress(OSError):  # then it is compared again
                self._kept.mkdir(parents=True, exist_ok=True)
                with (self._kept / _SOUND).open("a", encoding="utf-8") as file:
                    file.write(f"{run_id} {found}\n")


_SOUND = "sound"


def _looks(folder: str) -> str | None:
    """Changes whenever a file of the folder changes; None if there is no folder, or nothing in it.

    A file's time of change (ctime) is set by the system alone, also if it is moved here or its time is put back.
    """
    newest_ns = size_bytes = count = inodes = 0
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                status = entry.stat(follow_symlinks=False)
                newest_ns = max(newest_ns, status.st_ctime_ns)
                size_bytes += status.st_size
                inodes += status.st_ino
                count += 1
    except FileNotFoundError:
        return None
    except NotADirectoryError:
        return "a file"
    except OSError as error:
        raise ServelabError(f"{folder}: {error.strerror}") from None
    return f"{newest_ns} {size_bytes} {inodes} {count}" if count else None


def _read(file: Path) -> dict[str, str]:
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # then each is compared again
        return {}
    return dict(line.split(" ", 1) for line in lines if " " in line)
