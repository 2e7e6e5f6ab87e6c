"""Reads a YAML configuration file into its type; every mistake is one `ConfigError` line with file, key and fix."""

from __future__ import annotations

import re
import types
import typing
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import ValidationError

try:  # libyaml, where PyYAML was built with it: ten times as fast, which large studies need
    from yaml import CSafeLoader as SafeLoader
except ImportError:
    from yaml import SafeLoader  # type: ignore[assignment]

from servelab.errors import ConfigError
from servelab.registry import nearest
from servelab.spec import Strict

Config = TypeVar("Config", bound=Strict)


def read_config(path: Path, model: type[Config]) -> Config:
    """The typed content of a YAML file; `ConfigError` names file, key, and the nearest valid name."""
    content = read_yaml(path)
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise ConfigError(describe_validation_error(error, str(path), model)) from None


def read_yaml(path: Path) -> Any:
    """A YAML file's content; a missing or broken one is a `ConfigError` with file and line."""
    try:
        return yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)  # noqa: S506 (a SafeLoader)
    except FileNotFoundError:
        there = [file.stem for file in path.parent.glob("*.yaml")]
        raise ConfigError(f"{path}: no such file{nearest(path.stem, there)}") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        raise ConfigError(f"{path}{line}: not valid YAML: {getattr(error, 'problem', error)}") from None


class _Loader(SafeLoader):
    """YAML 1.2 in what matters here: `on`, `off`, `yes`, `no` are text; a key given twice is refused, not dropped."""

    yaml_implicit_resolvers = {  # noqa: RUF012 (PyYAML's own way)
        first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:bool"]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=deep)
            if key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"key `{key}` stands twice", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep=deep)


_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("^(?:true|True|false|False)$"), list("tTfF"))


def describe_validation_error(error: ValidationError, file: str, model: type[Strict]) -> str:
    """One line for a pydantic error: file, key, what is wrong, the nearest valid name; further errors are counted."""
    errors = error.errors(include_url=False)
    first = min(errors, key=lambda found: found["type"] != "extra_forbidden")  # a misspelt key is also a missing one
    location = first["loc"]
    key = ".".join(str(part) for part in location) or "(top level)"
    if first["type"] == "extra_forbidden":
        text = f"unknown key `{location[-1]}`{nearest(str(location[-1]), _valid_keys(model, location[:-1]))}"
    elif first["type"] == "missing":
        text = f"`{location[-1]}` is missing"
    else:
        text = f"{first['msg'].removeprefix('Value error, ')} (found {first.get('input')!s:.60})"
    more = f" ({len(errors) - 1} more after this one)" if len(errors) > 1 else ""
    return f"{file}: {key}: {text}{more}"


def _valid_keys(model: type[Strict], location: tuple[int | str, ...]) -> list[str]:
    """Keys valid at `location`, found by following it through the types of the fields."""
    types_here: list[Any] = [model]
    for part in location:
        types_here = [found for annotation in types_here for found in _step(annotation, part)]
    return sorted({key for kind in types_here if _is_strict(kind) for key in kind.model_fields})


def _step(annotation: Any, part: int | str) -> list[Any]:
    """Types below `part` of an annotation: a field, a list's or dict's values, or a tagged union's member."""
    if _is_strict(annotation):
        field = annotation.model_fields.get(str(part))
        if field is None:
            kind = annotation.model_fields.get("kind")
            return [annotation] if kind is not None and kind.default == part else []
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
