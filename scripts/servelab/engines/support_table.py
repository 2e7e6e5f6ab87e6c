"""docs/support.md: the options of each engine, its flags for them, and how each release was checked."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable

from servelab.core.errors import ConfigError
from servelab.core.run_spec import ArgumentValue
from servelab.engines.adapters import ENGINES, Engine, shown
from servelab.engines.options import ALL_ENGINES, HOW_CHECKED, OPTIONS, Owned

HEAD = """\
<!-- Made by `make docs` from scripts/servelab/engines/adapters/; edit there. -->
# Support: every option of every engine, and how it was checked

A study sets options by these names; [engines.md](engines.md#options) has notes on single engines.

"""
WORDS = """\
In the tables below, a cell says how the option was checked for that release:

| word | what was done |
|---|---|
"""
OWNED = """\
## What no study may set

Some arguments and environment variables are Servelab's own. A study with one of them gets an error that names it, also
by an alias of it. Those of one engine are below its table; the variables that its adapter sets are refused too.
For every engine:

"""
TAIL = """\
Tests compare every cell with the flags of the release (`scripts/servelab/engines/flags`), and fail for an option that
was not checked. Values of `attention_backend` and `kv_cache_dtype` are the engine's own names; the same files list them
per release.
"""
_SAMPLES: dict[type, ArgumentValue] = {int: 2, float: 0.5, bool: True, str: "auto"}

_NAME = re.compile(r"--?[a-z]|[A-Za-z_.]+=")
"""A flag, or a setting with its value."""
_TOGETHER = ("speculative_decoding", "speculative_tokens")
"""Options that only work together."""


def sample(engine: Engine, option: str) -> ArgumentValue:
    """A value that the engine accepts for an option."""
    values = engine.option_values.get(option)
    return values[0] if values else _SAMPLES[OPTIONS[option].kind]


def spelled(engine: Engine, option: str) -> list[str]:
    """The engine's flags, settings and variables for an option, sorted."""
    if option in engine.option_variables:
        return sorted(engine.option_variables[option](1))
    flags_of = (
        shown(engine.option_settings[option]) if option in engine.option_settings else engine.option_flags[option]
    )
    values = (True, False) if OPTIONS[option].kind is bool else (sample(engine, option),)
    together = {name: sample(engine, name) for name in _TOGETHER if option in _TOGETHER and name in engine.option_flags}
    parts = [part for value in values for part in flags_of(value, together | {option: value})]
    return sorted({part.partition("=")[0] for part in parts if _NAME.match(part)})


def render_docs() -> str:
    """The text of docs/support.md."""
    words = "".join(f"| {word} | {text} |\n" for word, text in HOW_CHECKED.items())
    refused = "| refused | This release does not have the option; a study that sets it gets an error. |\n"
    return "\n".join(
        [
            HEAD + _meanings(),
            WORDS + words + refused,
            *(_engine(engine) for engine in ENGINES if engine.checked),
            *(_running(engine) for engine in ENGINES if engine.already_runs),
            OWNED + _owned(ALL_ENGINES),
            TAIL,
        ]
    )


def _meanings() -> str:
    """Every option with its meaning and the engines that have it."""
    engines = [engine for engine in ENGINES if engine.options]
    head = f"| option | meaning | {' | '.join(each.name for each in engines)} |\n|---|---|{'---|' * len(engines)}\n"
    rows = [
        [f"`{name}`", option.description, *("yes" if name in engine.options else "no" for engine in engines)]
        for name, option in OPTIONS.items()
    ]
    return head + "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _engine(engine: Engine) -> str:
    releases = " | ".join(checked.release for checked in engine.checked)
    rows = [f"| {' | '.join(_row(engine, name))} |\n" for name in OPTIONS if name in engine.options]
    lacks = ", ".join(f"`{name}`" for name in OPTIONS if name not in engine.options)
    head = f"## {engine.name}\n\n| option | is | {releases} |\n|---|---|{'---|' * len(engine.checked)}\n"
    refused = f"Refused on every release: {lacks}."
    refused = f"\n{textwrap.fill(refused, 120)}\n" if lacks else ""
    owned = f"\n{_owned(engine.owned)}" if engine.owned else ""
    return f"{head}{''.join(rows)}{refused}\n{_answers(engine)}{owned}"


def _running(engine: Engine) -> str:
    where = "[engines.md](engines.md#a-server-that-already-runs)"
    return f"## {engine.name}\n\nIt has no options: it already runs ({where}).\n\n{_owned(engine.owned)}"


def _answers(engine: Engine) -> str:
    """The settings that make a candidate be asked the study's questions."""
    names = ", ".join(f"`{name}`" for name in dict.fromkeys(engine.answer_settings))
    known = "Its log-probabilities are read" if engine.logprob_fields else "It is not asked for log-probabilities"
    where = "([answers.md](answers.md#log-probabilities))"
    said = f"May change answers ([search.md](search.md#answers)): {names}. {known} {where}."
    return textwrap.fill(said, 120, break_on_hyphens=False, break_long_words=False) + "\n"


def _owned(parts: Iterable[Owned]) -> str:
    """Flags and variables that no study may set, by the reason."""
    rows = [(part.why, " ".join(f"`{name}`" for name in (*part.flags, *part.variables))) for part in parts]
    return "| no study may set | because |\n|---|---|\n" + "".join(f"| {names} | {why} |\n" for why, names in rows)


def _row(engine: Engine, option: str) -> list[str]:
    otherwise = "part of `speculative_decoding`" if option in _TOGETHER else "the accelerators it is given"
    names = ", ".join(f"`{name}`" for name in spelled(engine, option)) or otherwise
    return [f"`{option}`", names, *(_cell(engine, option, number) for number in range(len(engine.checked)))]


def _cell(engine: Engine, option: str, number: int) -> str:
    checked = engine.checked[number]
    try:
        engine.check_options({option: sample(engine, option)}, checked.release)
    except ConfigError:
        return "refused"
    return checked.of(option)
