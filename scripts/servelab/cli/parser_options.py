"""Options of a command that another program's `argparse` parser defines: completed, and read relative to a folder.

argparse lists its options in `_actions` only; tools that complete argparse's options read that, too.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from click.shell_completion import CompletionItem

FILE = CompletionItem("", type="file")
"""Asks the shell to complete the name of a file."""


def completions(parser: argparse.ArgumentParser, before: Sequence[str], incomplete: str) -> list[CompletionItem]:
    """What may follow the words `before`: options, the values of one, or names of files."""
    if incomplete.startswith("-"):
        return [
            CompletionItem(name, help=" ".join((action.help or "").split()))
            for action in parser._actions
            if action.help != argparse.SUPPRESS
            for name in action.option_strings
            if name.startswith(incomplete if len(incomplete) > 1 else "--")
        ]
    last = before[-1] if before else ""
    for action in parser._actions:
        if last in action.option_strings and action.choices:
            return [CompletionItem(str(each)) for each in action.choices if str(each).startswith(incomplete)]
    return [FILE]


def read_from(parser: argparse.ArgumentParser, arguments: Sequence[str], here: Path, root: Path) -> argparse.Namespace:
    """The arguments, typed in the folder `here`, with every path relative to `root`, where the program will run.

    A positional argument without a folder that is no file here stays as it is: it may be the name of a study.
    """
    for action in parser._actions:
        if action.type is Path:
            action.type = _path(here, root, is_name=not action.option_strings)
    return parser.parse_args(arguments)


def _path(here: Path, root: Path, *, is_name: bool) -> Callable[[str], Path]:
    def path(text: str) -> Path:
        given = here / text
        if is_name and not given.exists() and Path(text).name == text:
            return Path(text)
        return Path(os.path.relpath(given, root)) if given.is_relative_to(root) else given

    return path
