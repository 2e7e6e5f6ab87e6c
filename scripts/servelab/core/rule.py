"""What a rule of the workflow hands to its script: words `NAME=VALUE`, and in `files=` its files by name, as JSON.

`servelab.workflow.call` writes the command line. The commands that users type have options instead.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from servelab.core.cli import run


class Named(dict[str, Any]):
    """A dictionary whose values are attributes too."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


class RuleJob:
    """A job of a rule.

    `input` and `output` have a path, or a list of paths, by each name of the rule. `wildcards` and `params` have texts.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self.params = Named(word.split("=", 1) for word in words)
        files = json.loads(self.params.pop("files", "{}"))
        self.input, self.output = _paths(files.get("input", {})), _paths(files.get("output", {}))
        self.wildcards = Named(files.get("wildcards", {}))


def run_rule(main: Callable[[RuleJob], None], *, without_pandas: bool = False) -> NoReturn:
    """Calls `main` with the job of the command line, as `servelab.core.cli.run` does, and ends the process."""
    run(lambda: main(RuleJob(sys.argv[1:])), without_pandas=without_pandas)


def _paths(files: Mapping[str, str | list[str]]) -> Named:
    return Named({name: _path(found) for name, found in files.items()})


def _path(found: str | list[str]) -> Path | list[Path]:
    return Path(found) if isinstance(found, str) else [Path(each) for each in found]
