"""How a script ends: with its exit code, all that it printed, and what it left to do at its end done."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import atexit, sys, threading, time
from servelab.core import cli, errors
atexit.register(print, "at the end")
def later():
    time.sleep(0.1)
    print("thread")
def main():
    print("said")
    {}
cli.run(main)
"""
SAID = "said\nat the end\n"


@pytest.mark.parametrize(
    ("last", "code", "said", "error"),
    [
        ("pass", 0, SAID, ""),
        ("sys.exit(3)", 3, SAID, ""),
        ("sys.exit('no')", 1, SAID, "no\n"),
        ("raise errors.ConfigError('bad')", 2, SAID, "error: bad\n"),
        ("threading.Thread(target=later).start()", 0, "said\nthread\nat the end\n", ""),
        ("threading.Thread(target=later).start(); sys.exit(3)", 3, "said\nthread\nat the end\n", ""),
    ],
)
def test_a_script_ends(last, code, said, error):
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(last)], env=kept, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (code, said, error)
