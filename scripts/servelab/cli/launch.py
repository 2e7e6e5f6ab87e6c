"""What `servelab` is once installed: it runs the command of the checkout that the current folder is in.

Elsewhere it is that of the checkout that it was installed from, if it was installed with `--editable`. So the command,
its scripts and the workflow are always of one version, however the package was installed.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from servelab.cli.checkout import COMMAND, find_checkout, is_checkout
from servelab.core.shipped import CHECKOUT


def main() -> None:
    """Runs the checkout's command in place of this process; without a checkout only help and completion work."""
    checkout = find_checkout(Path.cwd()) or (CHECKOUT if is_checkout(CHECKOUT) else None)
    if checkout is None:
        from servelab.cli.commands import servelab

        servelab(prog_name="servelab")
    else:
        os.execv(sys.executable, [sys.executable, str(checkout / COMMAND), *sys.argv[1:]])  # noqa: S606
