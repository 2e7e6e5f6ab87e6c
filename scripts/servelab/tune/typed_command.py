"""Reads the command with which a user serves a model today: engine, model, options, variables, image.

It takes the command itself, a `docker run` line around it, and the container of a compose or Kubernetes file. What
Servelab sets itself (address, port, names) is left out and named.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any

import yaml

from servelab.core.credentials import holds_credential
from servelab.core.errors import ConfigError
from servelab.core.run_spec import ArgumentValue
from servelab.core.yaml_file import read_yaml
from servelab.engines.adapters import ENGINES, Engine
from servelab.engines.options import OPTIONS, TEXT_TASKS, check_option_names, is_off, lacks_value
from servelab.search.preflight.options import known_flags, nearest_flag

_DOCKER_SWITCH = re.compile(r"-[ditP]+|--(rm|detach|privileged|init|interactive|tty|read-only|publish-all)")
_VARIABLE = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
_USED = re.compile(r"\$\{(\w+)(?::?-([^}]*))?\}|\$\((\w+)\)|\$(\w+)")
"""A variable in a word, as a shell, Compose and Kubernetes write it: name and default."""
_OF_HUB = re.compile(r"(HF|HUGGING_?FACE|TRANSFORMERS|XDG)_\w*(HOME|CACHE|TOKEN)")
"""Variables that say where a model is kept, and who may have it."""
_FLAG = re.compile(r"--?[A-Za-z]")
_SWITCH = re.compile(r"--(no|enable|disable|trust|enforce|use|skip|async)[-_]")
"""Begins flags that take no value, at most true or false."""
_PROMPT = re.compile(r"\A[^\n]*@[^\n]*?(?<=\S)# ")
_PYTHON_SWITCH = re.compile(r"-[BEIOPSbdqsuvx]+")
_JOINS = ("-ot", "--override-tensor")
"""Flags that count each time they are given, and take a list with commas as well."""
_APPENDS = re.compile(r"--(override-kv|lora(-scaled)?|control-vector(-scaled)?|middleware)")
"""Flags that count each time they are given; of others the last one does."""


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
    if len(words) == 1 and words[0].endswith((".yaml", ".yml")) and " " not in words[0]:
        return _read_container(Path(words[0]))
    words = _of_shell(_split(words[0]) if len(words) == 1 else words)
    for place, word in enumerate(words[:-1]):
        if Path(word).name in ("docker", "podman", "nerdctl") and "run" in words[place + 1 : place + 3]:
            line = [_expanded(each, _set_in(words[:place])) for each in words[place:]]
            image, given, words = _of_container_line(line)
            return _read(words, given, image)
    return _read(words, {}, None)


def _split(text: str) -> list[str]:
    text = re.sub(r"(?<!\S)[\u2013\u2014]+(?=[A-Za-z])", "--", text)  # as pages make of two dashes, and of quotes
    text = text.translate(str.maketrans("\u201c\u201d\u2018\u2019", "\"\"''"))
    text = re.sub(r"""(?<=[\s=])\{"[^'\s]*\}(?!\S)""", r"'\g<0>'", text)  # JSON as files have it
    try:
        if re.match(r'\s*\["', text):  # as in a Dockerfile
            return [str(word) for word in json.loads(text)]
        return shlex.split(re.sub(r"\\\s*(\n|\Z)", " ", _PROMPT.sub("", text)), comments=True)
    except ValueError as error:
        raise ConfigError(f"the command cannot be read: {error}") from None


def _of_shell(words: list[str]) -> list[str]:
    """The words, and those of the text that `sh -c` gets."""
    for place, word in enumerate(words):
        flags = list(takewhile(lambda each: each.startswith("-"), words[place + 1 :]))
        text = words[place + 1 + len(flags) :]
        if Path(word).name in ("sh", "bash") and text and flags and re.fullmatch(r"-\w*c", flags[-1]):
            return words[:place] + _split(text[0])
    return words


def _set_in(words: Sequence[str]) -> dict[str, str]:
    """Variables that words before a command set."""
    return dict(each.split("=", 1) for each in words if _VARIABLE.fullmatch(each))


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
        if flag in ("-e", "--env"):
            variables |= _set_in([value])
        elif flag == "--entrypoint":
            entrypoint = _split(value)
        place += 1
    if place >= len(words):
        raise ConfigError("docker run: the line names no image")
    return words[place], variables, _of_shell([*entrypoint, *words[place + 1 :]])


def _read_container(file: Path) -> TypedCommand:
    """The only server in a compose or Kubernetes file."""
    try:
        documents = list(yaml.safe_load_all(file.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{file}: {' '.join(str(error).split())}") from None
    found = []
    for container in _containers(documents):
        parts = [container.get(key) or [] for key in ("entrypoint", "command", "args")]
        words = [word for each in parts for word in (_split(each) if isinstance(each, str) else map(str, each))]
        with suppress(ConfigError):
            found.append(_read(_of_shell(words), _environment(container), str(container["image"])))
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


def _environment(container: Mapping[str, Any]) -> dict[str, str]:
    given = container.get("environment") or container.get("env") or {}
    if isinstance(given, dict):
        return {str(name): str(value) for name, value in given.items()}
    pairs = (each.partition("=")[::2] if isinstance(each, str) else (each["name"], each.get("value")) for each in given)
    return {name: str(value) for name, value in pairs if value}


def _read(words: list[str], variables: dict[str, str], image: str | None) -> TypedCommand:
    """The first server that the words start, whatever is in front of it."""
    named = [engine for engine in ENGINES if engine.typed and image and re.search(engine.typed.image, image.lower())]
    for place, word in enumerate(words):
        while re.match("python", Path(word).name) and _PYTHON_SWITCH.fullmatch("".join(words[place + 1 : place + 2])):
            del words[place + 1]
        text = " ".join([Path(word).name, *words[place + 1 : place + 3]])
        for engine in [*named, *(each for each in ENGINES if each.typed)]:
            assert engine.typed is not None
            if begins := re.match(rf"({engine.typed.begins})(?= |$)", text):
                rest = words[place + len(begins[0].split()) :]
                return with_flags(engine, rest, variables | _set_in(words[:place]), image)
    if named and not re.match(r"(ba)?sh\b|python", " ".join(words)):  # the image starts the server, with these flags
        return with_flags(named[0], words, variables, image)
    known = ", ".join(" ".join(engine.display_base("MODEL")) for engine in ENGINES if engine.typed)
    raise ConfigError(f"`{shlex.join(words[:3])}` starts no engine that is known here; known are {known}")


def with_flags(engine: Engine, words: list[str], variables: dict[str, str], image: str | None) -> TypedCommand:
    """The command of an engine, which may be one that no known command starts, by the words after its beginning."""
    model, given = _model_and_flags(engine, [_expanded(word, variables) for word in words])
    revision = given.pop("--revision", None)
    if engine.own_flags() and (never := sorted(engine.gone.keys() & given.keys())):
        raise ConfigError(f"{never[0]}: {engine.gone[never[0]]}")
    for flag in engine.typed.other_tasks if engine.typed else ():
        if str(given.get(flag, "none")).lower() not in TEXT_TASKS:
            raise ConfigError(f"{flag}: the server answers with no text, which is what Servelab measures")
    options = _options(engine, given)
    refused = [each for flag in given for each in engine.refused_arguments(options, {flag: given[flag]}).items()]
    refused += engine.refused_variables(options, variables).items()
    left_out = {name: why.removeprefix("may not be set: ").removesuffix("; remove it") for name, why in refused}
    used = {found[1] or found[3] or found[4] for word in words for found in _USED.finditer(word)} & variables.keys()
    left_out |= {each: "its value is in the command" for each in used if not each.startswith(engine.variable_prefixes)}
    left_out |= {name: "Servelab fetches the model itself" for name in variables if _OF_HUB.fullmatch(name)}
    variables = {each: _expanded(value, variables) for each, value in variables.items()}
    left_out |= {each: "the command lacks its value" for each, value in variables.items() if _USED.search(value)}
    for name, value in {**given, **variables}.items():
        if holds_credential(name.removeprefix("--"), str(value)):  # as a study would be refused
            left_out[name] = "a credential would get into reports, and a server on loopback needs none"
    given = {flag: value for flag, value in given.items() if flag not in left_out}
    for name, value in {"the model": model, **given}.items():
        if isinstance(value, list):
            raise ConfigError(f"{name} takes several values, which a study cannot hold: {', '.join(map(str, value))}")
        if isinstance(value, str) and _USED.search(value):
            raise ConfigError(f"{name} is {value}, and the command does not set that variable; write its value")
        if why := lacks_value(engine.option_of(name), value):
            raise ConfigError(f"{name} {why}")
    return TypedCommand(
        engine=engine.name,
        model=model,
        revision=None if revision is None else str(revision),
        options=options,
        arguments={flag.removeprefix("--"): value for flag, value in given.items()},
        variables={each: value for each, value in variables.items() if each not in left_out},
        image=image,
        left_out=left_out,
    )


def _model_and_flags(engine: Engine, words: list[str]) -> tuple[str, dict[str, Any]]:
    """The model, and each other flag with its value, also of a configuration file that a flag names."""
    model_flags = engine.typed.model_flags if engine.typed else ()
    model, given = _pairs(words)
    if isinstance(file := given.get("--config"), str) and Path(file).is_file():
        model, given = _pairs([*_of_file(Path(file)), *words])
        del given["--config"]
    for flag in model_flags:
        model = str(given.pop(flag)) if flag in given else model
    if own := engine.own_flags():  # the launcher knows one name of each
        for flag in given.keys() - own:
            is_negated = flag.startswith("-n") and engine.names.of(f"-{flag[2:]}") == engine.names.of(flag)  # -nkvo
            if (name := f"--{'no-' * is_negated}{engine.names.of(flag)}") in own:
                given[name] = given.pop(flag)
    elif engine.abbreviates and (listed := known_flags(engine, "")):
        given = {_in_full(flag, listed.flags): value for flag, value in given.items()}
    if model is None:
        raise ConfigError(f"the command names no model; {engine.name} takes it by {' or '.join(model_flags)}")
    return model, given


def _in_full(flag: str, listed: Set[str]) -> str:
    """A flag whose end is left out, as argparse takes it."""
    name = flag.replace("_", "-")
    found = [each for each in listed if each.startswith(name)] if name.startswith("--") else []
    return found[0] if len(found) == 1 else flag


def _expanded(word: str, variables: Mapping[str, str]) -> str:
    """The word with the values of the variables that it uses, as far as the command sets them."""
    return _USED.sub(lambda used: variables.get(used[1] or used[3] or used[4], used[2] or used[0]), word)


def _of_file(file: Path) -> list[str]:
    """The flags of an engine's own configuration file."""
    flags = read_yaml(file)
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in flags.items()}
    return [f"--{name}={text}" if text != "true" else f"--{name}" for name, text in texts.items() if text != "false"]


def _pairs(words: list[str]) -> tuple[str | None, dict[str, Any]]:
    """The word that belongs to no flag, and each flag with its value: true without one, a list of several."""
    model: str | None = None
    given: dict[str, Any] = {}
    last = None
    for word in words:
        if word in ("&", "|", ">", ">>", "2>&1", ";", "&&", "||"):
            break
        if _FLAG.match(word):
            name, equals, value = word.partition("=")
            if name in given and _APPENDS.fullmatch(name):
                raise ConfigError(f"the command gives {name} twice; keep one of them")
            given[name] = _value(value) if equals else given.get(name, True) if name in _JOINS else True
            last = None if equals else name
        elif last is not None and (not _SWITCH.match(last) or word.lower() in ("true", "false")):
            before = given[last]
            given[last] = (
                _value(word) if before is True else [*(before if isinstance(before, list) else [before]), word]
            )
        elif model is None:
            model = word
        else:
            raise ConfigError(f"the command has a word that belongs to no flag: {word}")
    for name in [each for each in given if _SWITCH.match(each) and str(given[each]).lower() in ("true", "false")]:
        given[f"--no-{name[2:]}" if str(given.pop(name)).lower() == "false" else name] = True
    given |= {name: ",".join(given[name]) for name in _JOINS if isinstance(given.get(name), list)}
    return model, given


def _value(text: str) -> ArgumentValue:
    """A number as a number, unless it would be written otherwise."""
    for kind in (int, float):
        with suppress(ValueError):
            return number if str(number := kind(text)) == text else text
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
                by and (given[by] == rendered[flag] or type(value) is float) and is_off(by) == is_off(flag)
                for flag, by in same.items()
            ):
                found[option] = value
                for flag in same.values():
                    del given[flag]
                break
    return found


def _candidates(
    engine: Engine, option: str, given: Mapping[str, ArgumentValue], typed: Mapping[str, str]
) -> list[ArgumentValue]:
    """Values that an option may have been given by these flags."""
    kind = OPTIONS[option].kind
    if kind is bool:
        return [True, False]
    with suppress(ValueError, ConfigError):
        probe = engine.option_flags[option](kind(1), {})
        value = given.get(typed.get(engine.names.of(probe[0]), ""), True) if probe else True
        if value is None or isinstance(value, bool):
            return []
        found = json.loads(str(value)) if kind is int and type(value) is not int else kind(value)
        check_option_names({option: found})
        return [found]
    return []


def unknown_flags(command: TypedCommand, version: str) -> dict[str, str]:
    """Flags that a release does not have → a hint; none if its flags are not listed here."""
    engine = ENGINES.get(command.engine)
    listed = known_flags(engine, version)
    if listed is None:
        return {}
    flags = [name if name.startswith("-") else f"--{name}" for name in command.arguments]
    flags += [each for each in command.variables if listed.flags & {*engine.gone.get(each, "").split("`")}]
    return {
        flag: f"{listed.release} has no {flag}; {nearest_flag(engine, flag, listed.flags)}"
        for flag in flags
        if not engine.knows(flag, listed.flags)
    }
