"""Reads serving commands: variables, program, model and options. Commands are never run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

_BARE_JSON = re.compile(r"""(?<=[=\s])\{[^\s']*"[^\s']*\}(?=\s|$)""")
"""JSON that a page prints without quotes; a shell would take its quotes away and split it at its commas."""
VARIABLE = re.compile(r"^[A-Za-z_]\w*=", re.ASCII)


@dataclass(frozen=True)
class ServingCommand:
    """A command in its parts."""

    variables: dict[str, str]
    """Environment variables set before it."""
    words: tuple[str, ...]
    """Program, subcommand and other words before or between options, in order."""
    options: dict[str, str | None]
    """Options with their values; None for a bare flag."""

    @property
    def model(self) -> str | None:
        """The model: the value of a model option, or the last word."""
        for name in MODEL_OPTIONS:
            if self.options.get(name):
                return self.options[name]
        return self.words[-1] if len(self.words) > 1 else None

    @property
    def program(self) -> tuple[str, ...]:
        """The words without the model; all commands of an engine begin with them."""
        return tuple(word for word in self.words if word != self.model)


MODEL_OPTIONS = ("--model", "--model-path", "-m")
"""Options that name the model; an engine without one takes it as its last word."""


def read_command(text: str) -> ServingCommand:
    """A command in its parts; `ValueError` if it is empty or a quote is not closed.

    `--name value` and `--name=value` are the same; a word after an option is its value. JSON without quotes around it
    is read as it is meant.
    """
    tokens = shlex.split(_BARE_JSON.sub(lambda found: shlex.quote(found[0]), text))
    variables: dict[str, str] = {}
    while tokens and VARIABLE.match(tokens[0]):
        name, value = tokens.pop(0).split("=", 1)
        variables[name] = value
    if not tokens:
        raise ValueError("no program in it")
    words: list[str] = []
    options: dict[str, str | None] = {}
    open_option: str | None = None
    for token in tokens:
        if _is_option(token, words):
            name, equals, value = token.partition("=")
            options[name] = value if equals else None
            open_option = None if equals else name
        elif open_option is not None and not token.startswith("-"):
            options[open_option], open_option = token, None
        else:
            words.append(token)
            open_option = None
    return ServingCommand(variables, tuple(words), options)


def changes(incumbent: str, candidate: str) -> dict[str, object]:
    """The changes of a command against another: `program`, `arguments` and `environment_variables` that differ.

    An argument that the candidate omits is false.
    """
    before, after = read_command(incumbent), read_command(candidate)
    if before.program != after.program:
        return {"program": " ".join(after.program)}
    found: dict[str, object] = {} if before.model == after.model else {"model": after.model}
    pairs: dict[str, tuple[Mapping[str, object], Mapping[str, object]]] = {
        "arguments": (before.options, after.options),
        "environment_variables": (before.variables, after.variables),
    }
    for key, (old, new) in pairs.items():
        changed: dict[str, object] = {name: each for name, each in new.items() if name not in old or old[name] != each}
        changed |= {name: False for name in old if name not in new}
        if both := {name: value for name, value in changed.items() if name not in MODEL_OPTIONS}:
            found[key] = both
    return found


def same_command(one: str, other: str, model_names: dict[str, str]) -> bool:
    """Whether two commands have the same variables, words and options, in any order.

    `model_names` maps each way to write a model to its id.
    """
    return _normal(read_command(one), model_names) == _normal(read_command(other), model_names)


def _normal(command: ServingCommand, model_names: dict[str, str]) -> tuple[object, ...]:
    words = tuple(model_names.get(word, word) for word in command.words)
    options = {name: model_names.get(value or "", value or "") for name, value in command.options.items()}
    return command.variables, words, options


def _is_option(word: str, before: list[str]) -> bool:
    """True for `-tp` or `--max-num-seqs=8`, but not for the `-m` of `python -m`."""
    return word.startswith("-") and not (word == "-m" and before[-1:] and before[-1].startswith("python"))
