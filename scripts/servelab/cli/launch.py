"""What `servelab` is once installed: it runs the command of the checkout that the current folder is in.

So the command, its scripts and the workflow are always of one version, however the package was installed.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from servelab.cli.checkout import COMMAND, find_checkout


def main() -> None:
    """Runs the checkout's command in place of this process; outside a checkout only help and completion work."""
    checkout = find_checkout(Path.cwd())
    if checkout is None:
        from servelab.cli.commands import servelab

        servelab(prog_name="servelab")
    else:
        os.execv(sys.executable, [sys.executable, str(checkout / COMMAND), *sys.argv[1:]])  # noqa: S606
