"""The command `servelab` as pyproject.toml names it, for tests: it runs without being installed."""

import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
_MODULE, _, _FUNCTION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"][
    "servelab"
].partition(":")
SERVELAB = [sys.executable, "-c", f"from {_MODULE} import {_FUNCTION}; {_FUNCTION}()"]
"""What the program that pip writes does."""
