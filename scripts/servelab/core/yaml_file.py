"""Reads a YAML configuration file into its type; every mistake is one `ConfigError` line with file, key and fix."""

from __future__ import annotations

import json
import re
import types
import typing
from collections.abc import Hashable
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import ValidationError

try:  # libyaml, if PyYAML was built with it: ten times as fast, which large studies need
    from yaml import CSafeLoader as SafeLoader
except ImportError:
    from yaml import SafeLoader  # type: ignore[assignment]

from servelab.core.credentials import refuse_credentials, shown, without_credentials
from servelab.core.errors import ConfigError
from servelab.core.registry import nearest
from servelab.core.run_spec import PATTERNS, Strict

Config = TypeVar("Config", bound=Strict)

MOST_BYTES = 16 << 20
MOST_LEVELS = 64
"""Of a configuration file; the largest study here has 4 kB and 6 levels."""


def read_config(path: Path, model: type[Config]) -> Config:
    """The typed content of a YAML file; `ConfigError` names file, key, and the nearest valid name."""
    content = read_yaml(path)
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise ConfigError(describe_validation_error(error, str(path), model)) from None


def read_yaml(path: Path) -> Any:
    """The content of a YAML file; a missing or broken file is a `ConfigError` with file and line.

    A file that would take too much of the machine is refused before its values are made: one that is too large, too
    deeply nested, or that has aliases of aliases. So is a file with a credential.
    """
    text = _read_text(path)
    try:
        _check_size(text)
        content = yaml.load(text, Loader=_Loader)  # noqa: S506 (a SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        problem = " ".join(f"{getattr(error, 'context', None) or ''} {getattr(error, 'problem', error)}".split())
        if mark and "\t" in "".join(text.splitlines()[mark.line : mark.line + 1]):
            problem = f"{problem}; indent with spaces, no tabs"
        raise ConfigError(f"{path}{line}: not valid YAML: {problem}") from None
    except (ValueError, LookupError, AttributeError, OverflowError) as error:  # a date or number that is none
        raise ConfigError(f"{path}: not valid YAML: {error}; quote it if it is text") from None
    refuse_credentials(content, str(path))
    return content


def read_shipped(path: Path) -> Any:
    """The content of a YAML file that is a part of this package."""
    return yaml.load(path.read_bytes(), Loader=SafeLoader)


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        there = [file.stem for file in path.parent.glob("*.yaml") if file != path]
        raise ConfigError(f"{path}: no such file{nearest(path.stem, there)}") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    if len(content) > MOST_BYTES:
        raise ConfigError(f"{path}: larger than {MOST_BYTES >> 20} MiB, which no configuration is")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}:{line}: not valid YAML: not UTF-8; save it as UTF-8") from None


def _check_size(text: str) -> None:
    """Raises `ConstructorError` if the text is nested too deeply, or has an alias within what another may stand for.

    Aliases of aliases stand for more than any machine holds. It looks at the parser's events, one at a time: the
    composer calls itself for each level.
    """
    opened: list[bool] = []
    """Whether each list or mapping that has not ended has an anchor."""
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            opened.append(event.anchor is not None)
        elif isinstance(event, yaml.CollectionEndEvent):
            opened.pop()
        elif isinstance(event, yaml.AliasEvent) and any(opened):
            raise _wrong(f"`*{event.anchor}` is in a value that has a name (`&…`) itself; write it out", event)
        elif isinstance(event, yaml.ScalarEvent) and (found := shown(event.value)) != event.value:
            raise _wrong(f"a text has a character that neither commands nor pages can have: {found:.60}", event)
        if len(opened) > MOST_LEVELS:
            raise _wrong(f"nested more than {MOST_LEVELS} levels deep", event)


def _wrong(problem: str, place: Any) -> yaml.YAMLError:
    return yaml.constructor.ConstructorError(None, None, problem, place.start_mark)


class _Loader(SafeLoader):
    """YAML 1.2 as far as it matters here: `on`, `off`, `yes`, `no` are text; a key given twice is an error."""

    yaml_implicit_resolvers = {  # noqa: RUF012 (as PyYAML declares it)
        first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:bool"]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            if key_node.tag.endswith(":merge"):
                raise _wrong("`<<` is not read; write its keys out", key_node)
            key = self.construct_object(key_node, deep=deep)
            if not isinstance(key, Hashable):
                raise _wrong("a key is a list or a mapping", key_node)
            if key in seen:
                raise _wrong(f"key `{key}` is given twice", key_node)
            seen.add(key)
        return super().construct_mapping(node, deep=deep)


_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("^(?:true|True|false|False)$"), list("tTfF"))


_NO_KEY = re.compile(r"\.(\[key\]|constrained-\w+|str|int|float|bool)$|(?<=\.source)\.\w+|(?<=\.load)\.\w+")
"""What pydantic adds to a key: members of unions, and that the key itself is wrong."""
_KINDS = {"string": "text", "int": "a whole number", "float": "a number", "finite": "a finite number"}
_KINDS |= {"bool": "true or false", "list": "a list", "dict": "keys with values", "model": "keys with values"}
_OF_ANOTHER_KIND = re.compile(r"(string|int|float|finite|bool|list|dict|model)_(\w+_)?(type|parsing|size|float|number)")


def describe_validation_error(error: ValidationError, file: str, model: type[Strict]) -> str:
    """One line for a pydantic error: file, key, what is wrong, the nearest valid name; further errors are counted."""
    errors = error.errors(include_url=False)
    # a misspelt key also counts as missing, and infinity is no member of any union
    first = min(errors, key=lambda found: (found["type"] != "extra_forbidden", found["type"] != "finite_number"))
    location = first["loc"]
    key = _NO_KEY.sub("", ".".join(str(part) for part in location)) or "(top level)"
    given = first.get("input")
    found = f" (found {json.dumps(given, default=str, ensure_ascii=False):.60})" * (not isinstance(given, dict))
    if first["type"] == "extra_forbidden":
        text = f"unknown key `{location[-1]}`{nearest(str(location[-1]), _valid_keys(model, location[:-1]))}"
    elif first["type"] == "missing":
        text = f"`{location[-1]}` is missing"
    elif isinstance(given, list) and location and not key.endswith(str(location[-1])):  # of a union of single values
        text = f"takes one value{found}; write a candidate for each, or a range"
    elif first["type"] == "string_pattern_mismatch" and first["ctx"]["pattern"] in PATTERNS:
        text = f"takes {PATTERNS[first['ctx']['pattern']]}{found}"
    elif kind := _OF_ANOTHER_KIND.fullmatch(first["type"]):
        text = f"takes {_KINDS[kind[1]]}{found}"
    else:
        text = f"{first['msg'].removeprefix('Value error, ').replace('Input should be', 'must be')}{found}"
    more = f" ({len(errors) - 1} more after this one)" if len(errors) > 1 else ""
    return without_credentials(f"{file}: {key}: {text}{more}")


def _valid_keys(model: type[Strict], location: tuple[int | str, ...]) -> list[str]:
    """Keys that are valid at `location`, found by following it through the fields' types."""
    types_here: list[Any] = [model]
    for part in location:
        types_here = [found for annotation in types_here for found in _step(annotation, part)]
    return sorted({key for kind in types_here if _is_strict(kind) for key in kind.model_fields})


def _step(annotation: Any, part: int | str) -> list[Any]:
    """Types below `part` of an annotation: a field, the values of a list or dict, or a member of a tagged union."""
    if _is_strict(annotation):
        field = annotation.model_fields.get(str(part))
        if field is None:
            kind = annotation.model_fields.get("kind")
            return [annotation] if kind is None or kind.default == part else []  # or the name of a union's member
        return _members(field.annotation)
    arguments = typing.get_args(annotation)
    return _members(arguments[-1]) if arguments else []


def _members(annotation: Any) -> list[Any]:
    """The types an annotation can be: unions and `Annotated` taken apart."""
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        return _members(typing.get_args(annotation)[0])
    if origin in (typing.Union, types.UnionType):
        return [member for argument in typing.get_args(annotation) for member in _members(argument)]
    return [annotation]


def _is_strict(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Strict)
