"""The command line of a rule's script; `servelab.core.cli` reads it."""

from __future__ import annotations

import json
from typing import Any

SHOWN = "2>&1 | tee -i {log}"
UNREAD = ("made_from", "runs")
"""Inputs that no script reads by name: digests, and runs, which are found by the ids in a plan."""


def rule_files(wildcards: Any, input: Any, output: Any) -> str:
    """The parameter `files` of a rule: its files and wildcards by name, as JSON.

    Snakemake compares a rule's inputs by themselves, and not a parameter that is computed from them.
    """
    found = {
        "input": {name: _plain(files) for name, files in input.items() if name not in UNREAD},
        "output": {name: _plain(files) for name, files in output.items()},
        "wildcards": dict(wildcards.items()),
    }
    return json.dumps(found)


def call(function: str, *params: str, log: str = "> {log} 2>&1", python: str = "python") -> str:
    """The shell command of a rule: `<script>.<function>` with the rule's files and these of its parameters.

    `log` says where what the script prints goes; `SHOWN` shows it as well.
    """
    script, _, name = function.partition(".")
    words = " ".join(f"{param}={{params.{param}:q}}" for param in ("files", *params))
    return f'{python} "$SERVELAB_SCRIPTS"/{script}.py {name} {words} {log}'


def _plain(files: Any) -> str | list[str]:
    return str(files) if isinstance(files, str) else [str(each) for each in files]
