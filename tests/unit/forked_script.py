"""Runs a script of ours in a child of the test's process, which has Python and the package loaded already."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run_forked(script: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """`python scripts/SCRIPT ARGUMENTS`, but for the start of Python and what it reads from the environment.

    Only for a script that uses no threads of a library, such as those of pyarrow: the child has none.
    """
    command = [f"{ROOT}/scripts/{script}", *map(str, arguments)]
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        child = os.fork()
        if not child:
            _be(command, out.fileno(), err.fileno())
        _, status = os.waitpid(child, 0)
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(command, os.waitstatus_to_exitcode(status), out.read(), err.read())


def _be(command: list[str], out: int, err: int) -> None:
    """Never returns, so that the child does not go on with the tests."""
    code = 1
    try:
        os.dup2(out, 1)
        os.dup2(err, 2)
        sys.stdout, sys.stderr = (os.fdopen(number, "w", closefd=False) for number in (1, 2))
        sys.argv = command
        runpy.run_path(command[0], run_name="__main__")
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
