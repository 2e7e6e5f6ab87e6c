"""The shared vocabulary: options that mean the same on every engine that has them, and what was checked per release.

Each adapter maps an option to the engine's own flag. A flag of only one engine is an argument, passed on unchanged.
`tests/unit/test_engine_flags.py` compares options with the flags of each release; docs/reference/options.md is made
from this.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, TypeVar

from servelab.core.errors import ConfigError
from servelab.core.registry import nearest
from servelab.core.run_spec import ArgumentValue
from servelab.core.yaml_file import read_shipped
from servelab.engines.server_to_start import Options

T = TypeVar("T")
FlagsOf = Callable[[Any, Options], list[str]]
"""(an option's value, all options) → the engine's flags for it."""
VariablesOf = Callable[[Any], dict[str, str]]
"""An option's value → environment variables that set it."""
SettingsOf = Callable[[Any, Options], dict[str, Any]]
"""(an option's value, all options) → settings in the engine's configuration file, by dotted name."""


@dataclass(frozen=True)
class Option:
    """One option: the type of its value, and its meaning."""

    kind: type[int] | type[str] | type[bool] | type[float]
    description: str


_FACTS = read_shipped(Path(__file__).with_suffix(".yaml"))
_KINDS: dict[str, Any] = {"int": int, "str": str, "bool": bool, "float": float}
OPTIONS = {name: Option(_KINDS[kind], text) for name, (kind, text) in _FACTS["options"].items()}
"""Every option by name."""


def check_option_names(options: Mapping[str, ArgumentValue]) -> None:
    """`ConfigError` for a name that is not in the vocabulary or a value of the wrong type; null is always valid."""
    for name, value in options.items():
        if name not in OPTIONS:
            raise ConfigError(f"unknown option `{name}`{nearest(name, list(OPTIONS))}")
        kind = OPTIONS[name].kind
        if value is not None and type(value) is not kind:
            raise ConfigError(f"option `{name}` takes {_IN_WORDS[kind.__name__]}, not {value!r}")
        if kind is float and isinstance(value, float) and not 0 < value <= 1:
            raise ConfigError(f"option `{name}` takes {_IN_WORDS[kind.__name__]}, not {value}")
        if kind is int and isinstance(value, int) and value < 1:
            raise ConfigError(f"option `{name}` takes a number above 0, not {value}")


_IN_WORDS: dict[str, str] = _FACTS["kinds"]


def lacks_value(option: str | None, value: ArgumentValue) -> str | None:
    """Why the flag of an option may not have this value, or none; None if it may, or if it is no option's flag."""
    kind, text = OPTIONS[option].kind if option else bool, "" if value is None or value is True else str(value)
    if value is False or kind is bool or re.search(r"." if kind is str else r"\d|auto", text):  # vLLM has `32k`
        return None
    return f"takes {_IN_WORDS[kind.__name__]}" + (f", not {text!r}" if text else ", and has no value")


def argument(arguments: Mapping[str, ArgumentValue], *flags: str) -> ArgumentValue:
    """The value of the first of these flags that a study's arguments set, true without a value; None if none is set."""
    given = {_plain(name): True if value is None else value for name, value in arguments.items()}
    return next((given[_plain(flag)] for flag in flags if _plain(flag) in given), None)


def _plain(flag: str) -> str:
    """A flag without dashes in front; studies may leave them out, and engines accept `_` for `-`."""
    return flag.lstrip("-").replace("_", "-")


HOW_CHECKED: dict[str, str] = _FACTS["how_checked"]


@dataclass(frozen=True)
class Checked:
    """One release that an engine's options were compared with."""

    release: str
    how: str
    """Key of `HOW_CHECKED`, for every option of the release."""
    run: tuple[str, ...] = ()
    """Options that a test also runs a real server with."""
    flags: str | None = None
    """The release whose list of flags counts, such as `vllm-0.9.1`; None for its own."""

    def of(self, option: str) -> str:
        """How an option was checked."""
        return "run" if option in self.run else self.how


CANN: tuple[str, ...] = tuple(_FACTS["cann"])
"""Variables of CANN's toolkit, and of NNAL, which has ATB."""

PARALLEL_OPTIONS = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")
"""Options that use several accelerators, in the order of `Parallel`."""


@dataclass(frozen=True)
class Parallel:
    """Sizes of the three ways to use several accelerators; they multiply."""

    tensor: int = 1
    """Accelerators that share each layer."""
    pipeline: int = 1
    """Groups of accelerators, each with a part of the layers."""
    data: int = 1
    """Copies of the model."""

    @property
    def accelerators(self) -> int:
        """Number of accelerators in total."""
        return self.tensor * self.pipeline * self.data

    def __str__(self) -> str:
        return f"tensor {self.tensor} × pipeline {self.pipeline} × data {self.data}"


@dataclass(frozen=True)
class Owned:
    """Flags and variables that belong to Servelab for one reason."""

    why: str
    flags: tuple[str, ...] = ()
    """One name of each; `Engine.aliases` has the others."""
    variables: tuple[str, ...] = ()
    """Names; `*` stands for any characters."""


@dataclass(frozen=True)
class Typed:
    """How users start an engine."""

    begins: str
    """Regular expression of the words that the command begins with, without folders."""
    model_flags: tuple[str, ...]
    """Flags that name the model; it may also be the first word."""
    image: str
    """Regular expression of the names of images that start it, in small letters."""
    other_tasks: tuple[str, ...] = ()
    """Flags that make it serve embeddings or scores, unless their value is one of `TEXT_TASKS`."""


TEXT_TASKS = ("auto", "draft", "false", "generate", "none")

WHY: dict[str, str] = _FACTS["why"]
"""Key in the facts of an engine → why a flag is Servelab's."""

ALL_ENGINES = tuple(Owned(each["why"], variables=tuple(each["variables"])) for each in _FACTS["all_engines"])
"""Variables that no study may set, whatever its engines."""

_NAME = re.compile(r"-{0,2}[A-Za-z][\w.+-]*(=.*)?", re.DOTALL)
_FLAG_LIKE = re.compile(r"--?[A-Za-z]")


def bare(given: str) -> str:
    """The name of a flag without dashes, value and `no-`; `_` and `-` are equal up to the first dot, as in engines."""
    name, dot, key = given.partition("=")[0].lstrip("-").partition(".")
    return name.replace("_", "-").removeprefix("no-") + dot + key


class Names:
    """Names of an engine's flags: which are the same flag, and which a parser takes for another."""

    def __init__(self, aliases: Iterable[Collection[str]], *, abbreviates: bool, prefix: str = "") -> None:
        """`aliases` are the names of one flag each, its first name first; `prefix` is no part of a name."""
        self._prefix = prefix
        self._first = {bare(name): bare(next(iter(group))) for group in aliases for name in group}
        self._abbreviates = abbreviates

    def of(self, given: str) -> str:
        """The first name of a flag; a key after a dot is a part of it."""
        name = bare(given.removeprefix(self._prefix))
        letter = name[:1]
        is_short = self._abbreviates and given.startswith("-") and given[1:2] != "-" and given[2:3] != "."
        if is_short and name not in self._first and letter in self._first:
            return self._first[letter]  # `-q4` is `-q 4`
        base, dot, key = name.partition(".")
        return self._first.get(name) or self._first.get(base, base) + dot + key

    def abbreviated(self, given: str, flags: Iterable[str]) -> str | None:
        """The flag among these, or among those with aliases, that the parser takes an unknown name for."""
        name, flags = bare(given.removeprefix(self._prefix)), [*flags, *self._first]
        if not self._abbreviates or name in flags:
            return None
        return next((flag for flag in flags if flag.startswith(name)), None)


def refused_arguments(
    own: Mapping[str, str], names: Names, taken: Mapping[str, str], arguments: Mapping[str, ArgumentValue]
) -> dict[str, str]:
    """Arguments that a study may not give → why; `own` and `taken`: first names of flags of Servelab and of options."""
    seen: dict[str, str] = {}
    refused: dict[str, str] = {}
    for given, value in arguments.items():
        name = names.of(given)
        base = name.partition(".")[0]
        if not _NAME.fullmatch(given):
            refused[given] = "is not the name of an argument; write a name and its value, as in `{max-num-seqs: 8}`"
        elif isinstance(value, str) and _FLAG_LIKE.match(value):
            refused[given] = f"has the value `{value}`, which the engine reads as another argument; give it a key"
        elif why := own.get(name) or own.get(base):
            refused[given] = f"may not be set: {why}; remove it"
        elif name in seen:
            refused[given] = f"is the same as the argument `{seen[name]}`; keep one of them"
        elif by := taken.get(name) or taken.get(base):
            refused[given] = f"is also set by the option `{by}`; remove one"
        elif meant := names.abbreviated(given, [*own, *taken, *seen]):
            refused[given] = f"begins the name of `--{meant}`, which the engine takes it for; write it in full"
        seen.setdefault(name, given)
    return refused


def refused_variables(owned: Iterable[Owned], taken: Mapping[str, str], variables: Iterable[str]) -> dict[str, str]:
    """Variables that a study may not set → why, with the fix; `taken` are variables that options set → the option."""
    refused: dict[str, str] = {}
    for given in variables:
        why = next((part.why for part in owned for name in part.variables if fnmatchcase(given, name)), None)
        if why:
            refused[given] = f"may not be set: {why}; remove it"
        elif given in taken:
            refused[given] = f"is also set by the option `{taken[given]}`; remove one"
    return refused


def rendered(name: str, value: ArgumentValue) -> list[str]:
    """An argument of a study as flags."""
    name = name if name.startswith("-") else f"--{name}"
    if value is False:
        return []
    if value is None or value is True:
        return [name]
    return [name, str(value)]


def is_off(flag: str) -> bool:
    """Whether a switch is written as what it switches off."""
    return flag.lstrip("-").startswith(("no-", "disable-"))


def flag(*names: str) -> FlagsOf:
    """An option whose value is passed with each of these flags."""
    return lambda value, options: [part for name in names for part in (name, str(value))]


def switch(on: str, off: str | None = None) -> FlagsOf:
    """An option that is true or false: a flag for each; no flag for false if `off` is None."""
    return lambda value, options: [on] if value else [off] if off else []


def experts(name: str) -> FlagsOf:
    """`expert_parallel` by a flag for the number of accelerators that share the experts: all that share a layer."""
    return lambda value, options: [name, str(options.get("tensor_parallel_size") or 1)] if value else []


def setting(name: str) -> SettingsOf:
    """An option that is one setting of the configuration file."""
    return lambda value, options: {name: value}


def drafted(nothing: T) -> Callable[[Any, Options], T]:
    """`speculative_tokens` where it is a part of `speculative_decoding`, so that `nothing` is set by itself."""

    def part(value: Any, options: Options) -> T:
        if options.get("speculative_decoding") is None:
            raise ConfigError("option `speculative_tokens` needs `speculative_decoding`")
        return nothing

    return part


def shown(settings_of: SettingsOf) -> FlagsOf:
    """An option that is not a flag, displayed as `name=value`."""

    def texts(value: Any, options: Options) -> list[str]:
        settings = settings_of(value, options).items()
        return [f"{name}={text if isinstance(text, str) else json.dumps(text)}" for name, text in settings]

    return texts
