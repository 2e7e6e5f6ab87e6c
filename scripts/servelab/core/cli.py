"""Shared by every command line, and the arguments that a rule of the workflow hands to its script.

An error that the user can fix is one line, not a traceback. A rule hands its name, words `NAME=VALUE`, and in `files=`
its files by name, as JSON (`servelab.workflow.rule_parts` writes the line). Commands that users type have options.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from servelab.core.credentials import shown, without_credentials
from servelab.core.errors import ServelabError

_BROKEN_PIPE = 128 + signal.SIGPIPE
"""The exit status that a shell reports of a program whose reader left."""


def run(main: Callable[[], None], *, without_pandas: bool = False) -> None:
    """Calls `main` as `call` does.

    `without_pandas` is for a script that never uses pandas: pyarrow would load it with the first array that it makes, a
    fifth of a short script's time.
    """
    if without_pandas:
        sys.meta_path.insert(0, _WithoutPandas)
    call(main)


def call(main: Callable[[], None]) -> None:
    """Calls `main`; a `ServelabError` becomes `error: …` on stderr and its exit code.

    Nothing that it writes to stderr has a credential, tracebacks included, and nothing that it writes acts on a
    terminal. It ends quietly if the program that reads its output ends first, as `head` does.
    """
    sys.stdout = _Shown(sys.stdout, shown)
    sys.stderr = _Shown(sys.stderr, lambda text: shown(without_credentials(text)))
    try:
        try:
            main()
        finally:
            sys.stdout.flush()
    except ServelabError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        if not _reader_has_ended():
            raise
        sys.exit(_BROKEN_PIPE)


class _WithoutPandas:
    """Says that pandas is not installed."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name)


class _Shown:
    """A text stream that changes what is written, write by write: the one place where text becomes output."""

    def __init__(self, stream: TextIO, change: Callable[[str], str]) -> None:
        self._stream, self._change = stream, change

    def write(self, text: str) -> int:
        self._stream.write(self._change(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _reader_has_ended() -> bool:
    """Whether standard output is a pipe that nobody reads; what is still to be flushed then goes nowhere."""
    waiting = select.poll()
    waiting.register(sys.stdout, 0)
    if not any(event & select.POLLERR for _, event in waiting.poll(0)):
        return False
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return True


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


def run_rule(rules: Mapping[str, Any], *, without_pandas: bool = False) -> None:
    """Calls the function of a rule, the first word of the command line, with its job, as `run` does."""
    name, *words = sys.argv[1:]
    run(lambda: rules[name](RuleJob(words)), without_pandas=without_pandas)


def _paths(files: Mapping[str, str | list[str]]) -> Named:
    return Named({name: Path(at) if isinstance(at, str) else [*map(Path, at)] for name, at in files.items()})
