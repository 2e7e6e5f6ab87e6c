"""docs/reference/options.md: the options of each engine, its flags for them, and how each release was checked."""

from __future__ import annotations

import re

from servelab.core.errors import ConfigError
from servelab.core.run_spec import ArgumentValue
from servelab.engines.adapters import ENGINES, Engine
from servelab.engines.options import ALL_ENGINES, HOW_CHECKED, OPTIONS, shown

HEAD = """\
<!-- Made by `make docs` from scripts/servelab/engines/adapters/; edit there. -->
# Options: every option of every engine, and how it was checked

A study sets options by these names; [engines.md](../engines.md#options) has notes on single engines.

"""
WORDS = """\
The lists of engines say how an option was checked with each release:

"""
OWNED = """\
## No study may set

Some arguments and environment variables are Servelab's own, under any of their names. A study with one of them gets an
error that names it and says why:

"""
TAIL = """
Tests compare every option with the flags of the release (`scripts/servelab/engines/flags`).
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
    """The text of docs/reference/options.md."""
    words = "".join(f"- {word}: {text}\n" for word, text in HOW_CHECKED.items())
    refused = "- refused: This release does not have the option; a study that sets it gets an error.\n"
    return "\n".join(
        [
            HEAD + _meanings(),
            WORDS + words + refused,
            *(_engine(engine) for engine in ENGINES if engine.checked),
            OWNED + "".join(f"- {why}\n" for why in _reasons()) + TAIL,
        ]
    )


def _meanings() -> str:
    """Every option with its meaning."""
    return "".join(f"- `{name}`: {option.description}\n" for name, option in OPTIONS.items())


def _engine(engine: Engine) -> str:
    releases = ", ".join(checked.release for checked in engine.checked)
    rows = "".join(_row(engine, name) for name in OPTIONS if name in engine.options)
    lacks = ", ".join(f"`{name}`" for name in OPTIONS if name not in engine.options)
    refused = f"- refused: {lacks}\n" if lacks else ""
    return f"## {engine.name}\n\nReleases: {releases}.\n\n{rows}{refused}{_answers(engine)}"


def _reasons() -> list[str]:
    """Why no study may set what Servelab sets, each reason once."""
    parts = (*ALL_ENGINES, *(part for engine in ENGINES for part in engine.owned))
    return list(dict.fromkeys(part.why for part in parts))


def _answers(engine: Engine) -> str:
    """The settings that make a candidate be asked the study's questions."""
    alike = (each for each in ENGINES if each.name < engine.name)
    same = next((each.name for each in alike if each.answer_settings == engine.answer_settings), None)
    names = f"as {same}" if same else ", ".join(f"`{name}`" for name in dict.fromkeys(engine.answer_settings))
    known = "read" if engine.logprob_fields else "not read"
    return f"- may change answers ([search.md](../search.md#answers)): {names}; log-probabilities are {known}\n"


def _row(engine: Engine, option: str) -> str:
    otherwise = "part of `speculative_decoding`" if option in _TOGETHER else "the accelerators it is given"
    names = ", ".join(f"`{name}`" for name in spelled(engine, option)) or otherwise
    cells = [_cell(engine, option, number) for number in range(len(engine.checked))]
    return f"- `{option}`: {names} ({cells[0] if len(set(cells)) == 1 else ', '.join(cells)})\n"


def _cell(engine: Engine, option: str, number: int) -> str:
    checked = engine.checked[number]
    try:
        engine.check_options({option: sample(engine, option)}, checked.release)
    except ConfigError:
        return "refused"
    return checked.of(option)
