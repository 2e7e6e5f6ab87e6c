"""The command `servelab` of this checkout; the installed one runs this file from any folder of the checkout."""

from servelab.cli.launch import servelab
from servelab.core.cli import run

if __name__ == "__main__":
    run(lambda: servelab(prog_name="servelab"))
