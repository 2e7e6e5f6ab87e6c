"""Holds a container that belongs to a daemon: `container_holder.py docker run --interactive --name NAME …`.

The container lives only as long as its standard input is open (`servelab.runtimes.docker`), and this process holds the
other end: however it is ended, and the client of the daemon with it, the container ends too. It ends as the container's
command did, with the same code or by the same signal; with 75 where the daemon could not run it at all.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys

_DAEMON_FAILED = 125
"""The exit code of `docker run` for a failure of docker itself; others are the command's."""
_OUTAGE = 75
_SIGNALS = {128 + number: number for number in signal.valid_signals()}
"""How a shell, and a container, tell the signal that ended a command."""


def hold(command: list[str]) -> int:
    """Runs the client until it ends; its exit code, negative for a signal that ended it."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)  # the client is in the same group: it gets them too and passes them on
    client = subprocess.Popen(command, stdin=subprocess.PIPE)
    returncode = client.wait()
    if returncode < 0:  # the client was killed: the container is on its way out, or was not started yet
        name = command[command.index("--name") + 1]
        subprocess.run([command[0], "rm", "--force", name], capture_output=True, check=False)
    return returncode


def end_as(returncode: int) -> None:
    """Ends this process as the container's command ended."""
    number = -returncode if returncode < 0 else _SIGNALS.get(returncode)
    if number is not None:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    sys.exit(_OUTAGE if returncode == _DAEMON_FAILED else returncode)


if __name__ == "__main__":
    end_as(hold(sys.argv[1:]))
