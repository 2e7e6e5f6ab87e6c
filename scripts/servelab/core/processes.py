"""Child processes that never outlive this process: each runs under its own warden (`servelab.core.warden`)."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from servelab.core import warden
from servelab.core.errors import Outage
from servelab.core.files import follows_no_link
from servelab.core.warden import become_subreaper, kill_tree

_running: set[Supervised] = set()


def log_line(text: str) -> None:
    """Writes a line to standard error, a job's log."""
    print(text, file=sys.stderr, flush=True)


class Supervised:
    """One command with its whole process tree, until it exits or is stopped.

    Its output is appended to `log`. `keep_open` are file descriptors that stay open until the tree is gone, such as
    the locks of a device: the warden inherits them, the command does not. Raises `Outage` if the command cannot start.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        log: Path,
        grace_s: float = 10.0,
        keep_open: Sequence[int] = (),
    ) -> None:
        become_subreaper()  # this process becomes the parent of what a killed warden leaves behind
        self._strangers = {child.pid for child in psutil.Process().children()}
        with open(log, "ab", opener=follows_no_link) as output:
            self._warden = subprocess.Popen(
                [sys.executable, "-P", warden.__file__, "--grace-s", str(grace_s), "--", *command],
                env=dict(environment),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                start_new_session=True,  # Ctrl-C reaches this process alone, which then stops the tree in order
                pass_fds=keep_open,
            )
        _running.add(self)
        self._ended = os.pidfd_open(self._warden.pid)
        self._grace_s = grace_s
        self._returncode: int | None = None
        message = self._message()
        if "pid" not in message:
            self.stop()
            raise Outage(f"cannot start {message.get('error', command[0])}")
        self.pid = int(message["pid"])
        """The command's own process."""

    def wait(self, timeout_s: float) -> int | None:
        """The command's return code, negative for a signal, once its whole tree is gone; None if it still runs.

        Raises `Outage` if the warden was killed; the processes it left are ended first.
        """
        wait_any([self], timeout_s)
        return self.poll()

    def poll(self) -> int | None:
        """The same as `wait`, without waiting."""
        if self in _running and self._warden.poll() is not None:
            self._settle()
        if self not in _running and self._returncode is None:
            raise Outage("the process that supervises the server was killed")
        return self._returncode

    def stop(self) -> None:
        """Ends the tree: SIGTERM, then SIGKILL after `grace_s`; returns when it is gone. May be called twice."""
        if self not in _running:
            return
        assert self._warden.stdin is not None
        self._warden.stdin.close()
        try:
            self._warden.wait(self._grace_s + 30)
        except subprocess.TimeoutExpired:
            self._warden.kill()
            self._warden.wait()
        self._settle()

    def _settle(self) -> None:
        """After the warden has ended: reads its last line, or ends what it left if it was killed before writing one."""
        self._returncode = self._message().get("returncode")
        self._forget()
        if self._returncode is None:
            self._end_orphans()

    def _message(self) -> dict[str, Any]:
        """The warden's next line; empty at the end."""
        assert self._warden.stdout is not None
        line = self._warden.stdout.readline()
        return dict(json.loads(line)) if line else {}

    def _forget(self) -> None:
        _running.discard(self)
        os.close(self._ended)
        for pipe in (self._warden.stdin, self._warden.stdout):
            if pipe is not None:
                pipe.close()

    def _end_orphans(self) -> None:
        """Kills what a killed warden left: these processes are now children of this one, the next subreaper above.

        It repeats until none is found: the children of the command come here only after the kernel has killed it.
        """
        others = self._strangers | {process._warden.pid for process in _running}
        while orphans := [child for child in psutil.Process().children() if child.pid not in others]:
            for child in orphans:
                kill_tree(child)
                child.kill()
                child.wait()

    def fileno(self) -> int:
        """A descriptor for `select`, readable once the tree has ended."""
        return self._ended


def wait_any(processes: Sequence[Supervised], timeout_s: float) -> None:
    """Waits until one of the processes has ended, at most `timeout_s` seconds."""
    running = [process for process in processes if process in _running]
    if len(running) == len(processes):
        select.select(running, [], [], timeout_s)


def stop_all() -> None:
    """Ends every tree that still runs."""
    for process in list(_running):
        process.stop()


MOST_BYTES = 8 << 20
"""Bytes that are read; of a longer log the first and the last half of so many."""
MOST_LINE = 8192
"""Characters of a line; the rest of a longer one is left out."""
CUT = "…"
"""Ends a line that was longer, and stands for the lines between the two halves."""


def lines_at_ends(log: Path, start: int = 0) -> list[str]:
    """The lines of a log from byte `start` on; those between its first and its last part are one line, `CUT`."""
    if not log.exists():
        return []
    with log.open("rb") as file:
        size = os.fstat(file.fileno()).st_size - start
        file.seek(start)
        if size <= MOST_BYTES:
            return _lines(file.read(MOST_BYTES))
        first = _lines(file.read(MOST_BYTES // 2))
        file.seek(start + size - MOST_BYTES // 2)
        return [*first, CUT, *_lines(file.read(MOST_BYTES // 2))]


def last_text(log: Path, characters: int) -> str:
    """The last characters of a log, without space at its ends."""
    with log.open("rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - MOST_BYTES))
        return file.read(MOST_BYTES).decode(errors="replace").strip()[-characters:]


def _lines(content: bytes) -> list[str]:
    lines = content.decode(errors="replace").splitlines()
    return [line if len(line) <= MOST_LINE else line[:MOST_LINE] + CUT for line in lines]
