"""Warden: runs one command and ends its whole process tree, even if the process that started the warden is killed.

`python -m servelab.core.warden --grace-s 10 -- command …` gets a pipe as standard input that its parent holds open. The
tree ends when the pipe closes (the parent stopped it, or died in any way), when the warden gets a signal, or when the
command's own process exits. The command's output goes to the warden's standard error. The warden's standard output
carries two JSON lines: `{"pid": …}` or `{"error": …}` after the start, and `{"returncode": …}` when the tree is gone.

The kernel makes the nearest subreaper the parent of a process whose parent has ended, and the warden is one: nothing
escapes it by a double fork, a new session or a new process group. If the warden itself is killed, the kernel kills the
command's process, and the rest goes to the warden's parent, which is a subreaper too (`servelab.core.processes`).
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys

import psutil

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
_POLL_S = 0.02
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_libc = ctypes.CDLL(None, use_errno=True)


def become_subreaper() -> None:
    """Makes this process the parent of every orphan among its descendants."""
    if _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def kill_tree(root: psutil.Process) -> None:
    """Kills all descendants of a process and waits until none is left, including those that fork meanwhile."""
    while living := [child for child in _descendants(root) if child.is_running()]:
        for child in living:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()  # psutil checks that the pid is still the same process
        psutil.wait_procs(living, timeout=_POLL_S)


def _descendants(root: psutil.Process) -> list[psutil.Process]:
    found = []
    with contextlib.suppress(psutil.NoSuchProcess):
        for child in root.children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                if child.status() != psutil.STATUS_ZOMBIE:
                    found.append(child)
    return found


def run(command: list[str], grace_s: float) -> int:
    """Runs the command until it exits or must stop; returns its return code, negative for a signal."""
    become_subreaper()
    wake, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    for number in _STOP_SIGNALS:
        signal.signal(number, lambda *_: None)  # the wake-up pipe reports it
    warden = os.getpid()

    def die_with_warden() -> None:
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != warden:
            os._exit(1)

    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        stderr=sys.stderr,
        process_group=0,  # not a session: a session leader may not call setpgrp(), which MindIE's daemon does first
        preexec_fn=die_with_warden,
    )
    _say({"pid": process.pid})
    exited = os.pidfd_open(process.pid)
    select.select([0, wake, exited], [], [])
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
        select.select([exited], [], [], grace_s)
        process.kill()
    returncode = process.wait()  # before its children, so that `os.wait` below does not take its exit status
    with contextlib.suppress(ChildProcessError):  # raised when no child, dead or alive, is left
        while True:
            kill_tree(psutil.Process())
            os.wait()
    return returncode


def _say(message: dict[str, object]) -> None:
    with contextlib.suppress(BrokenPipeError):  # the parent may be gone
        os.write(1, (json.dumps(message) + "\n").encode())


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--grace-s", type=float, default=10.0, help="time between SIGTERM and SIGKILL")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    command = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    try:
        returncode = run(command, arguments.grace_s)
    except OSError as error:
        _say({"error": f"{command[0]}: {error.strerror}"})
        sys.exit(1)
    _say({"returncode": returncode})


if __name__ == "__main__":
    main()
