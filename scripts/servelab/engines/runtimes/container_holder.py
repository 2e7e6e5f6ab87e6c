"""Ends a daemon's container together with its job: `container_holder.py docker run --interactive --name NAME …`.

The container runs only while its standard input is open (`servelab.engines.runtimes.docker`), and this process holds
the other end. If this process ends in any way, and the daemon's client with it, the container ends too. This process
ends like the container's command, with the same exit code or signal; with 75 if the daemon could not start it.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys

_DAEMON_FAILED = 125
"""The exit code of `docker run` for a failure of docker itself; other codes are the command's."""
_OUTAGE = 75
_SIGNALS = {128 + number: number for number in signal.valid_signals()}
"""Exit codes by which shells and containers report the signal that ended a command."""


def hold(command: list[str]) -> int:
    """Runs the client until it ends; returns its exit code, negative for a signal."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)  # the client is in the same group, gets them too, and passes them on
    client = subprocess.Popen(command, stdin=subprocess.PIPE)
    returncode = client.wait()
    if returncode < 0:  # the client was killed: the container is ending, or was not started yet
        name = command[command.index("--name") + 1]
        subprocess.run([command[0], "rm", "--force", name], capture_output=True, check=False)
    return returncode


def end_as(returncode: int) -> None:
    """Ends this process with the exit code or the signal of the container's command."""
    number = -returncode if returncode < 0 else _SIGNALS.get(returncode)
    if number is not None:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    sys.exit(_OUTAGE if returncode == _DAEMON_FAILED else returncode)


if __name__ == "__main__":
    end_as(hold(sys.argv[1:]))
