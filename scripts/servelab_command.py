"""The command `servelab` of this checkout; the installed one runs this file from any folder of the checkout."""

import sys

from servelab.cli.launch import servelab
from servelab.core.cli import run

if __name__ == "__main__":
    run(lambda: servelab(sys.argv[1:]))
