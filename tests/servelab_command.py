"""The command `servelab` for tests: in this process, and as pyproject.toml names it, which needs no installation."""

import contextlib
import io
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from servelab.cli.launch import servelab
from servelab.core.cli import call

ROOT = Path(__file__).parents[1]
_MODULE, _, _FUNCTION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"][
    "servelab"
].partition(":")
SERVELAB = [sys.executable, "-c", f"from {_MODULE} import {_FUNCTION}; {_FUNCTION}()"]
"""The program that pip writes."""


def run_servelab(*words: object, cwd: Path = ROOT, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs a command in this process, in that folder and with these environment variables besides."""
    said, errors = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(said),
        contextlib.redirect_stderr(errors),
    ):
        patch.chdir(cwd)
        for name, value in variables.items():
            patch.setenv(name, value)
        code: object = 0
        try:
            call(lambda: servelab([str(word) for word in words]))
        except SystemExit as end:
            code = end.code or 0
    printed = (stream.buffer.getvalue().decode() for stream in (said, errors))
    return subprocess.CompletedProcess(words, code, *printed)
