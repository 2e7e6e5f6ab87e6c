"""What every command line shares: errors the user can act on are one line, not a traceback."""

from __future__ import annotations

import sys
from collections.abc import Callable

from servelab.credentials import without_credentials
from servelab.errors import ServelabError


def run(main: Callable[[], None]) -> None:
    """Calls `main`; a `ServelabError` becomes `error: …` on stderr, without credentials, and its exit code."""
    try:
        main()
    except ServelabError as error:
        print(f"error: {without_credentials(str(error))}", file=sys.stderr)
        sys.exit(error.exit_code)
