"""Runs a load client with a time limit: `python -m servelab.time_limit --seconds 60 --late F --results F -- command …`.

Exits 0 where the command has written its results, whatever it thinks of them (some exit 1 when requests failed), and
as the command does where it has not. Where the time is over first, it ends the command with all it started, writes the
empty file `--late` and exits 0.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import psutil

from servelab.warden import become_subreaper, kill_tree


def main() -> None:
    """Runs the command; its output goes where this process's goes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--late", type=Path, required=True, help="file that says the time was over")
    parser.add_argument("--results", type=Path, required=True, help="file the command writes")
    parser.add_argument("command", nargs="+")
    arguments = parser.parse_args()
    become_subreaper()  # what the command leaves behind then comes to this process
    running = subprocess.Popen(arguments.command)
    try:
        returncode = running.wait(arguments.seconds)
    except subprocess.TimeoutExpired:
        kill_tree(psutil.Process())
        arguments.late.touch()
        returncode = 0
    sys.exit(0 if arguments.results.exists() else returncode)


main()
