"""What every command line shares: an error that the user can fix is one line, not a traceback."""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Callable

from servelab.core.credentials import without_credentials
from servelab.core.errors import ServelabError

_BROKEN_PIPE = 128 + signal.SIGPIPE
"""What a shell reports of a program that its reader left."""


def run(main: Callable[[], None]) -> None:
    """Calls `main`; a `ServelabError` becomes `error: …` on stderr, without credentials, and its exit code.

    It ends quietly if the program that reads its output ends first, as `head` does.
    """
    try:
        try:
            main()
        finally:
            sys.stdout.flush()
    except ServelabError as error:
        print(f"error: {without_credentials(str(error))}", file=sys.stderr)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        if not _reader_has_ended():
            raise
        sys.exit(_BROKEN_PIPE)


def _reader_has_ended() -> bool:
    """Whether standard output is a pipe that nobody reads; what is still to be flushed then goes nowhere."""
    waiting = select.poll()
    waiting.register(sys.stdout, 0)
    if not any(event & select.POLLERR for _, event in waiting.poll(0)):
        return False
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return True
