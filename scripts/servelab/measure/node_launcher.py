"""Starts the other nodes' parts for a server's own launcher, such as `mpirun`, which would use ssh for that.

The launcher calls a program, `<program> <address> <words of a command> …`, as it would call ssh. The program passes the
words on to this process, which has the agent on that node run them, and it ends when they have ended there.
"""

from __future__ import annotations

import contextlib
import json
import shlex
import shutil
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from servelab.core.errors import ServelabError

_POLL_S = 0.2
_PROGRAM = """\
import json, socket, sys
with socket.socket(socket.AF_UNIX) as asked:
    asked.connect(sys.argv[1])
    asked.sendall(json.dumps(sys.argv[2:]).encode() + b"\\n")
    sys.exit(int(asked.makefile().readline() or 1))
"""


class Launcher:
    """Takes commands between `open` and `close`; only this user's processes can reach it."""

    def __init__(self, run: Callable[[str, list[str]], Callable[[], int | None]]) -> None:
        """`run` starts a command on the node with an address; the result tells its return code, None while it runs."""
        self._run = run
        self._open: tuple[Path, socket.socket] | None = None

    def open(self) -> Path:
        """Takes commands from now on; returns the program."""
        self.close()
        folder = Path(tempfile.mkdtemp(prefix="servelab-"))  # a socket's path must be short
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(folder / "socket"))
        listener.listen()
        self._open = folder, listener
        program, words = folder / "launch", [sys.executable, "-c", _PROGRAM, str(folder / "socket")]
        program.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n', encoding="utf-8")
        program.chmod(0o700)
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()
        return program

    def close(self) -> None:
        """Takes no more commands."""
        if self._open is not None:
            folder, listener = self._open
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits for one
            listener.close()
            shutil.rmtree(folder, ignore_errors=True)
            self._open = None

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                asked, _ = listener.accept()
            except OSError:  # closed
                return
            threading.Thread(target=self._answer, args=(asked,), daemon=True).start()

    def _answer(self, asked: socket.socket) -> None:
        with asked, contextlib.suppress(OSError, ServelabError, LookupError):
            address, *words = json.loads(asked.makefile().readline())
            # as ssh does: the launcher quotes its words for a shell there
            poll = self._run(address, ["/bin/sh", "-c", " ".join(words)])
            while (returncode := poll()) is None:
                time.sleep(_POLL_S)
            asked.sendall(f"{returncode if returncode >= 0 else 128 - returncode}\n".encode())
