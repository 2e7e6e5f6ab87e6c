"""Traces a process that has this folder on its path: which files below scripts/ it reads, a line each.

The lines are in `$TRACED/<script>`, whose processes add to it, those that it forks among them.
"""

import importlib.util
import os
import sys
from pathlib import Path

TRACED, SCRIPTS = os.environ.get("TRACED"), str(Path("scripts").absolute())
seen = set()


def note(event, arguments):
    if event != "open" or not isinstance(arguments[0], str) or not arguments[0].startswith(SCRIPTS):
        return
    path = arguments[0]
    if path in seen:
        return
    seen.add(path)
    if path.endswith(".pyc"):
        path = importlib.util.source_from_cache(path.rpartition(".pyc")[0] + ".pyc")
    script = Path(sys.argv[0]).name if hasattr(sys, "argv") else ""
    if script.endswith(".py") and Path(path).is_file():
        with (Path(TRACED) / script.removesuffix(".py")).open("a") as file:
            file.write(f"{os.path.relpath(path)}\n")


if TRACED:
    sys.addaudithook(note)
