"""Folders of runs and pairs: complete or absent, whoever works on them, on whichever node.

Each attempt works in a folder of its own beside the final one, `.<id>.<host>.<pid>.<start>.part`. It becomes
`<id>` in one step; of several attempts the first to finish wins and the others find that out.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from servelab.claims import claim, is_claimed
from servelab.errors import Outage
from servelab.files import move_folder
from servelab.processes import stop_all

_ATTEMPT = re.compile(r"\.(?P<id>[0-9a-f]{20})\.(?P<host>.+)\.(?P<pid>\d+)\.(?P<start>\d+)\.part")
_FORGOTTEN_S = 24 * 3600
"""An attempt of another node that has written nothing for so long is over: its time limits are far shorter."""


@dataclass(frozen=True)
class Attempt:
    """Somebody's work on a run or a pair that is not complete."""

    folder: Path
    id: str
    host: str
    pid: int
    started_s: int
    """Unix time."""

    @property
    def is_alive(self) -> bool:
        """Whether it is still at work: on this host by its claim, on another one by when it last wrote something."""
        if self.host == os.uname().nodename:
            return is_claimed(self.folder.with_name(self.id))
        try:
            written_s = max(path.stat().st_mtime for path in [self.folder, *self.folder.iterdir()])
        except OSError:  # it has ended just now
            return False
        return time.time() - written_s < _FORGOTTEN_S


def attempts(parent: Path) -> list[Attempt]:
    """Attempts at runs or pairs in a folder, dead ones among them."""
    names = sorted(entry.name for entry in os.scandir(parent)) if parent.is_dir() else []
    found = [(name, _ATTEMPT.fullmatch(name)) for name in names]
    return [
        Attempt(parent / name, match["id"], match["host"], int(match["pid"]), int(match["start"]))
        for name, match in found
        if match
    ]


def read_status(folder: Path) -> dict[str, Any] | None:
    """The status of a complete run or pair; None where there is none."""
    try:
        status: dict[str, Any] = json.loads((folder / "status.json").read_bytes())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return status


def make_once(output: Path, work_in: Callable[[Path], None]) -> dict[str, Any]:
    """The status of the run or pair in `output`, which `work_in` makes in the folder it gets, unless it is there.

    Whoever else is making it is waited for, and who was first is kept. `output` appears complete or not at all, and no
    process that was started meanwhile outlives it. A full disk is an `Outage`.
    """
    with claim(output):
        if status := read_status(output):
            print(f"{output.name}: measured by another workflow, which is kept", file=sys.stderr, flush=True)
            return status
        with _attempt(output) as folder:
            work_in(folder)
            stop_all()
            was_first = move_folder(folder, output)
        if (status := read_status(output)) is None:
            raise Outage(f"{output} is in the way and is not complete; remove it and run again")
        if not was_first:
            print(f"{output.name}: another workflow was first, its result is kept", file=sys.stderr, flush=True)
        return status


@contextmanager
def _attempt(output: Path) -> Iterator[Path]:
    """A folder to make `output` in, gone at the end; what dead attempts have left goes first."""
    host = os.uname().nodename
    folder = output.with_name(f".{output.name}.{host}.{os.getpid()}.{int(time.time())}.part")
    try:
        for other in attempts(output.parent):
            # with the claim, no attempt of this host is alive
            if other.id == output.name and (other.host == host or not other.is_alive):
                shutil.rmtree(other.folder, ignore_errors=True)
        shutil.rmtree(output, ignore_errors=True)
        folder.mkdir(parents=True)
        yield folder
    except OSError as error:
        raise Outage(f"cannot keep the results of {output.name}: {error}") from error
    finally:
        stop_all()
        shutil.rmtree(folder, ignore_errors=True)
