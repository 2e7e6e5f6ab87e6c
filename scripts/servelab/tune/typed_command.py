"""Reads the command with which a user serves a model today: engine, model, options, variables, image.

It takes the command itself, a `docker run` line around it, and the container of a compose or Kubernetes file. What
Servelab sets itself (address, port, names) is left out and named.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from servelab.core.credentials import holds_credential
from servelab.core.errors import ConfigError
from servelab.core.run_spec import ArgumentValue
from servelab.engines.adapters import ENGINES, Engine
from servelab.engines.options import OPTIONS
from servelab.search.preflight.options import known_flags, nearest_flag

_DOCKER_SWITCH = re.compile(r"-d|-[it]{1,2}|--(rm|detach|privileged|init|interactive|tty|read-only)")
_VARIABLE = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
_FLAG = re.compile(r"--?[A-Za-z]")


@dataclass(frozen=True)
class TypedCommand:
    """A command as typed, in the words of a study."""

    engine: str
    model: str
    revision: str | None = None
    options: dict[str, ArgumentValue] = field(default_factory=dict)
    arguments: dict[str, ArgumentValue] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    image: str | None = None
    left_out: dict[str, str] = field(default_factory=dict)
    """Flag or variable → why it is no part of the study."""


def read_command(words: Sequence[str]) -> TypedCommand:
    """The command, as words, as one text, or as a compose or Kubernetes file; `ConfigError` if it is not known."""
    words = list(words)
    if len(words) == 1 and words[0].endswith((".yaml", ".yml")):
        return _read_container(Path(words[0]))
    if len(words) == 1:
        words = _split(words[0])
    variables, words = _variables(words)
    image = None
    if len(words) > 1 and Path(words[0]).name in ("docker", "podman", "nerdctl") and "run" in words[1:3]:
        image, given, words = _of_container_line(words)
        variables |= given
    return _read(words, variables, image)


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text.replace("\\\n", " "), comments=True)
    except ValueError as error:
        raise ConfigError(f"the command cannot be read: {error}") from None


def _variables(words: list[str]) -> tuple[dict[str, str], list[str]]:
    """Assignments in front of a command, also behind `env`, and the rest."""
    found: dict[str, str] = {}
    rest = list(words)
    while rest and (_VARIABLE.fullmatch(rest[0]) or rest[0] in ("env", "export", "exec", "nohup", "&&")):
        name, equals, value = rest.pop(0).partition("=")
        if equals:
            found[name] = value
    return found, rest


def _of_container_line(words: list[str]) -> tuple[str, dict[str, str], list[str]]:
    """Image, variables and command of a `docker run` line."""
    variables: dict[str, str] = {}
    entrypoint: list[str] = []
    place = words.index("run") + 1
    while place < len(words) and words[place].startswith("-"):
        flag, equals, value = words[place].partition("=")
        if not equals and not _DOCKER_SWITCH.fullmatch(flag):
            place += 1
            value = words[place] if place < len(words) else ""
        if flag in ("-e", "--env") and "=" in value:
            name, _, text = value.partition("=")
            variables[name] = text
        elif flag == "--entrypoint":
            entrypoint = _split(value)
        place += 1
    if place >= len(words):
        raise ConfigError("docker run: the line names no image")
    return words[place], variables, [*entrypoint, *words[place + 1 :]]


def _read_container(file: Path) -> TypedCommand:
    """The only server in a compose or Kubernetes file."""
    try:
        documents = list(yaml.safe_load_all(file.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{file}: {' '.join(str(error).split())}") from None
    found = []
    for container in _containers(documents):
        words = [word for key in ("entrypoint", "command", "args") for word in _words(container.get(key))]
        if len(words) > 1 and Path(words[0]).name in ("sh", "bash") and words[1] in ("-c", "-lc"):
            words = _split(" ".join(words[2:]))
        variables, words = _variables(words)
        with suppress(ConfigError):
            found.append(_read(words, _environment(container) | variables, str(container["image"])))
    if len(found) != 1:
        raise ConfigError(f"{file}: {len(found)} containers start an engine that is known; give the command itself")
    return found[0]


def _containers(value: Any) -> list[dict[str, Any]]:
    """Every mapping with an `image`, at any depth."""
    if isinstance(value, list):
        return [found for each in value for found in _containers(each)]
    if not isinstance(value, dict):
        return []
    own = [value] if "image" in value and ("command" in value or "args" in value or "entrypoint" in value) else []
    return own + [found for each in value.values() for found in _containers(each)]


def _words(value: Any) -> list[str]:
    return [] if value is None else _split(value) if isinstance(value, str) else [str(each) for each in value]


def _environment(container: Mapping[str, Any]) -> dict[str, str]:
    given = container.get("environment") or container.get("env") or {}
    if isinstance(given, dict):
        return {str(name): str(value) for name, value in given.items()}
    pairs = (each.partition("=")[::2] if isinstance(each, str) else (each["name"], each.get("value")) for each in given)
    return {name: str(value) for name, value in pairs if value is not None}


def _read(words: list[str], variables: dict[str, str], image: str | None) -> TypedCommand:
    text = " ".join([Path(words[0]).name, *words[1:3]]) if words else ""
    named = [engine for engine in ENGINES if engine.typed and image and re.search(engine.typed.image, image.lower())]
    for engine in [*named, *(each for each in ENGINES if each.typed)]:
        assert engine.typed is not None
        if begins := re.match(rf"({engine.typed.begins})(?= |$)", text):
            return _with_flags(engine, words[len(begins[0].split()) :], variables, image)
    if named and not re.match(r"(ba)?sh\b|python", text):  # the image starts the server, with these flags
        return _with_flags(named[0], words, variables, image)
    known = ", ".join(" ".join(engine.display_base("MODEL")) for engine in ENGINES if engine.typed)
    raise ConfigError(f"`{shlex.join(words[:3])}` starts no engine that is known here; known are {known}")


def _with_flags(engine: Engine, words: list[str], variables: dict[str, str], image: str | None) -> TypedCommand:
    assert engine.typed is not None
    model, given = _pairs(words)
    left_out: dict[str, str] = {}
    for flag in engine.typed.model_flags:
        model = str(given.pop(flag)) if flag in given else model
    if model is None:
        raise ConfigError(
            f"the command names no model; {engine.name} takes it by {' or '.join(engine.typed.model_flags)}"
        )
    revision = given.pop("--revision", None)
    options = _options(engine, given)
    for flag in list(given):
        if why := engine.refused_arguments(options, {flag: given[flag]}).get(flag):
            left_out[flag] = _reason(why)
            del given[flag]
    for variable, why in engine.refused_variables(options, variables).items():
        left_out[variable] = _reason(why)
    for name, value in {**given, **variables}.items():
        if holds_credential(_argument_name(name), str(value)):  # as a study would be refused
            left_out[name] = "a credential would get into reports, and a server on loopback needs none"
    given = {flag: value for flag, value in given.items() if flag not in left_out}
    return TypedCommand(
        engine=engine.name,
        model=model,
        revision=None if revision is None else str(revision),
        options=options,
        arguments={_argument_name(flag): value for flag, value in given.items()},
        variables={each: value for each, value in variables.items() if each not in left_out},
        image=image,
        left_out=left_out,
    )


def _reason(why: str) -> str:
    return why.removeprefix("may not be set: ").removesuffix("; remove it")


def _argument_name(flag: str) -> str:
    """As a study writes it: a flag of one dash keeps it."""
    return flag.removeprefix("--")


def _pairs(words: list[str]) -> tuple[str | None, dict[str, ArgumentValue]]:
    """The word in front of the flags, and each flag with its value; true without one."""
    model: str | None = None
    given: dict[str, ArgumentValue] = {}
    last = None
    for word in words:
        if word in ("&", "|", ">", ">>", "2>&1", ";", "&&", "||"):
            break
        if _FLAG.match(word):
            name, equals, value = word.partition("=")
            if name in given:
                raise ConfigError(f"the command gives {name} twice; keep one of them")
            given[name] = _value(value) if equals else True
            last = None if equals else name
        elif last is not None:
            if given[last] is not True:
                raise ConfigError(f"{last} takes several values, which a study cannot hold yet: {given[last]}, {word}")
            given[last] = _value(word)
        elif model is None:
            model = word
        else:
            raise ConfigError(f"the command has a word that belongs to no flag: {word}")
    return model, given


def _value(text: str) -> ArgumentValue:
    """A number as a number, unless it would be written otherwise."""
    for kind in (int, float):
        try:
            number = kind(text)
        except ValueError:
            continue
        return number if str(number) == text else text
    return text


def _options(engine: Engine, given: dict[str, ArgumentValue]) -> dict[str, ArgumentValue]:
    """Options of the shared vocabulary that these flags set; the flags are taken out of `given`.

    An option counts if the engine renders it as just these flags and values, so that the command stays the same.
    """
    found: dict[str, ArgumentValue] = {}
    for option, flags_of in engine.option_flags.items():
        if option in engine.option_settings:
            continue
        typed = {engine.names.of(flag): flag for flag in given}
        for value in _candidates(engine, option, given, typed):
            _, rendered = _pairs(flags_of(value, found | {option: value}))
            same = {flag: typed.get(engine.names.of(flag), "") for flag in rendered}
            if same and all(
                by and given[by] == rendered[flag] and _is_off(by) == _is_off(flag) for flag, by in same.items()
            ):
                found[option] = value
                for flag in same.values():
                    del given[flag]
                break
    return found


def _is_off(flag: str) -> bool:
    return flag.lstrip("-").startswith("no-")


def _candidates(
    engine: Engine, option: str, given: Mapping[str, ArgumentValue], typed: Mapping[str, str]
) -> list[ArgumentValue]:
    """Values that an option may have been given by these flags."""
    kind = OPTIONS[option].kind
    if kind is bool:
        return [True, False]
    try:
        probe = engine.option_flags[option](kind(1), {})
    except ConfigError:
        return []
    flag = typed.get(engine.names.of(probe[0])) if probe else None
    value = given[flag] if flag else None
    if value is None or isinstance(value, bool):
        return []
    try:
        return [json.loads(str(value)) if kind is int and type(value) is not int else kind(value)]
    except ValueError:
        return []


def unknown_flags(command: TypedCommand, version: str) -> dict[str, str]:
    """Flags that a release does not have → a hint; none if its flags are not listed here."""
    engine = ENGINES.get(command.engine)
    listed = known_flags(engine, version)
    if listed is None:
        return {}
    flags = [name if name.startswith("-") else f"--{name}" for name in command.arguments]
    return {
        flag: f"{listed.release} has no {flag}; {nearest_flag(flag, listed.flags)}"
        for flag in flags
        if not engine.knows(flag, listed.flags)
    }
