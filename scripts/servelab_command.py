"""The command `servelab` of this checkout; the installed one runs this file from any folder of the checkout."""

from servelab.cli.commands import servelab

if __name__ == "__main__":
    servelab(prog_name="servelab")
