"""Runs a load client with a time limit.

`python -m servelab.measure.time_limit --seconds 60 --late F --results F -- command …`

Exits 0 if the command has written its results, even if the command exits 1 because requests failed; else with the exit
code of the command. At the time limit it ends the command with all its processes, writes the empty file `--late` and
exits 0.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import psutil

from servelab.core.warden import become_subreaper, kill_tree


def main() -> None:
    """Runs the command; it writes to this process's standard output and standard error."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--late", type=Path, required=True, help="file that says the time was over")
    parser.add_argument("--results", type=Path, required=True, help="file the command writes")
    parser.add_argument("command", nargs="+")
    arguments = parser.parse_args()
    become_subreaper()  # orphans of the command then become children of this process
    running = subprocess.Popen(arguments.command)
    try:
        returncode = running.wait(arguments.seconds)
    except subprocess.TimeoutExpired:
        kill_tree(psutil.Process())
        arguments.late.touch()
        returncode = 0
    sys.exit(0 if arguments.results.exists() else returncode)


main()
