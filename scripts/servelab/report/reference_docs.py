"""Documents made from the types, so that neither can drift from the other; a test compares them with the files."""

from __future__ import annotations

import json
import re
import typing
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BeforeValidator
from pydantic.fields import FieldInfo

from servelab.core.errors import ConfigError
from servelab.core.run_spec import ArgumentValue, HubSource, PackageSource, PathSource, ProtocolSpec, Strict
from servelab.core.ssh_signature import SigningKey
from servelab.engines.adapters import ENGINES, Engine
from servelab.engines.options import ALL_ENGINES, HOW_CHECKED, OPTIONS, shown
from servelab.machine.rates import MIB, PUBLISHED, TERA
from servelab.metrics.definitions import render_docs as render_metrics
from servelab.report.files_page import render_docs as render_files
from servelab.report.json_output import json_schema
from servelab.report.json_output import render_docs as render_json
from servelab.report.page import render_markdown
from servelab.results.checks import render_docs as render_checks
from servelab.study.recorded.study import RecordedStudy
from servelab.study.search_keys import Answers, Budget, Objective, SearchKeys
from servelab.study.site import Placement, Site
from servelab.study.study import (
    Candidate,
    Model,
    ModelVariant,
    Stage,
    Study,
    StudyEngine,
    StudyHardware,
)
from servelab.study.workload_loads import StudyWorkload


def documents() -> dict[str, str]:
    """Text of every generated file by its path from the root of the project."""
    return {
        "config/schema/study.schema.json": _json_schema(Study.model_json_schema()),
        "config/schema/recorded.schema.json": _json_schema(RecordedStudy.model_json_schema()),
        "config/schema/site.schema.json": _json_schema(Site.model_json_schema()),
        "config/schema/output.schema.json": _json_schema(json_schema()),
        "docs/reference/keys.md": _keys(),
        "docs/reference/metrics.md": render_metrics() + _rates(),
        "docs/reference/checks.md": render_checks(),
        "docs/reference/options.md": _options(),
        "docs/reference/files.md": render_files(),
        "docs/reference/json.md": render_json(),
    }


def _json_schema(schema: Mapping[str, Any]) -> str:
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _rates() -> str:
    """The published rates of devices, a line for each source."""
    by_source: dict[str, list[str]] = {}
    for _, _, rates in PUBLISHED:
        operations = ", ".join(f"{rate / TERA:g} at {bits} bits" for bits, rate in rates.operations_per_s.items())
        memory, cache = rates.memory_bytes_per_s / TERA, rates.cache_bytes / MIB
        text = f"{rates.name} {memory:g} TB/s, {operations}, L2 {cache:g} MiB"
        by_source.setdefault(rates.source, []).append(text)
    return "".join(f"- {'; '.join(figures)} ({source})\n" for source, figures in by_source.items())


_SECTIONS: tuple[tuple[str, type[Strict]], ...] = (
    ("Study: a file of `config/studies/`", Study),
    ("`model`", Model),
    ("`model.variants.<name>`", ModelVariant),
    ("`source` of kind `hub`", HubSource),
    ("`source` of kind `package`", PackageSource),
    ("`source` of kind `path`", PathSource),
    ("`hardware`", StudyHardware),
    ("`engines.<name>`", StudyEngine),
    ("`objective`", Objective),
    ("`protocol`", ProtocolSpec),
    ("`workloads`", StudyWorkload),
    ("`answers`", Answers),
    ("`search`", SearchKeys),
    ("`budget`", Budget),
    ("`stages`", Stage),
    ("`baseline` and `stages.candidates`", Candidate),
    ("Site: a file of `config/sites/`", Site),
    ("`accelerators.<name>` and `devices.<kind>`", Placement),
    ("`sign`", SigningKey),
)
_LIKE: dict[type[Strict], type[Strict]] = {ModelVariant: Model, StudyWorkload: ProtocolSpec}
"""Section → an earlier one. Keys that both have are only named."""


def _keys() -> str:
    parts = []
    for title, model in _SECTIONS:
        alike = _LIKE[model].model_fields if model in _LIKE else {}
        lines = [_field_line(name, field) for name, field in model.model_fields.items() if name not in alike]
        same = ", ".join(f"`{name}`" for name in model.model_fields if name in alike)
        lines += [f"- as above: {same}\n"] if same else []
        parts.append(f"## {title}\n\n{_summary(model)}\n\n{''.join(lines)}")
    return render_markdown("keys.md.j2", {"sections": "\n".join(parts)})


def _summary(model: type[Strict]) -> str:
    return (model.__doc__ or "").strip().splitlines()[0]


def _field_line(name: str, field: FieldInfo) -> str:
    default = "required" if field.is_required() else _default(field.get_default(call_default_factory=True))
    given = [each.json_schema_input_type for each in field.metadata if isinstance(each, BeforeValidator)]
    # a mapping by name may be written as a list
    is_list = given and typing.get_origin(given[0]) is list and typing.get_origin(field.annotation) is dict
    kind = ", ".join(filter(None, (_type_name(given[0] if is_list else field.annotation), default)))
    types = (field.annotation, *typing.get_args(field.annotation))
    parts = [_summary(each) for each in types if isinstance(each, type) and issubclass(each, Strict)]
    meaning = field.description or next(iter(parts), "")
    return f"- `{name}` ({kind}){f': {meaning}' if meaning else ''}\n"


def _default(value: Any) -> str:
    return "" if value is None or isinstance(value, Strict) else f"`{json.dumps(value)}`"


def _type_name(annotation: Any) -> str:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _type_name(arguments[0])
    if origin is typing.Literal:
        return " or ".join(f"`{value}`" for value in arguments)
    if origin in (list, tuple):
        return f"list of {_type_name(arguments[0])}"
    if origin is dict:
        return f"mapping of {_type_name(arguments[1])}"
    if arguments:
        return " or ".join(_type_name(argument) for argument in arguments if argument is not type(None))
    names: dict[Any, str] = {str: "text", int: "integer", float: "number", bool: "true or false", type(None): "null"}
    return names.get(annotation) or str(annotation.__name__)


_SAMPLES: dict[type, ArgumentValue] = {int: 2, float: 0.5, bool: True, str: "auto"}
_NAME = re.compile(r"--?[a-z]|[A-Za-z_.]+=")
"""A flag, or a setting with its value."""
_TOGETHER = ("speculative_decoding", "speculative_tokens")
"""Options that only work together."""


def _options() -> str:
    parts = (*ALL_ENGINES, *(part for engine in ENGINES for part in engine.owned))
    lines: dict[str, Iterable[str]] = {
        "options": (f"- `{name}`: {option.description}\n" for name, option in OPTIONS.items()),
        "words": (f"- {word}: {text}\n" for word, text in HOW_CHECKED.items()),
        "engines": (_engine(engine) for engine in ENGINES if engine.checked),
        "reasons": dict.fromkeys(f"- {part.why}\n" for part in parts),
    }
    return render_markdown("options.md.j2", {name: "".join(each) for name, each in lines.items()})


def sample(engine: Engine, option: str) -> ArgumentValue:
    """A value that the engine accepts for an option."""
    values = engine.option_values.get(option)
    return values[0] if values else _SAMPLES[OPTIONS[option].kind]


def spelled(engine: Engine, option: str) -> list[str]:
    """The engine's flags, settings and variables for an option, sorted."""
    if option in engine.option_variables:
        return sorted(engine.option_variables[option](1))
    is_setting = option in engine.option_settings
    flags_of = shown(engine.option_settings[option]) if is_setting else engine.option_flags[option]
    values = (True, False) if OPTIONS[option].kind is bool else (sample(engine, option),)
    together = {name: sample(engine, name) for name in _TOGETHER if option in _TOGETHER and name in engine.option_flags}
    parts = [part for value in values for part in flags_of(value, together | {option: value})]
    return sorted({part.partition("=")[0] for part in parts if _NAME.match(part)})


def _engine(engine: Engine) -> str:
    """An engine's options, and the settings that make a candidate be asked the study's questions."""
    releases = ", ".join(checked.release for checked in engine.checked)
    rows = "".join(_option_line(engine, name) for name in OPTIONS if name in engine.options)
    lacks = ", ".join(f"`{name}`" for name in OPTIONS if name not in engine.options)
    refused = f"- refused: {lacks}\n" if lacks else ""
    alike = (each for each in ENGINES if each.name < engine.name)
    same = next((each.name for each in alike if each.answer_settings == engine.answer_settings), None)
    names = f"as {same}" if same else ", ".join(f"`{name}`" for name in dict.fromkeys(engine.answer_settings))
    answers = f"- may change answers ([search.md](../search.md#answers)): {names}\n"
    return f"\n## {engine.name}\n\nReleases: {releases}.\n\n{rows}{refused}{answers}"


def _option_line(engine: Engine, option: str) -> str:
    otherwise = "part of `speculative_decoding`" if option in _TOGETHER else "the accelerators it is given"
    names = ", ".join(f"`{name}`" for name in spelled(engine, option)) or otherwise
    cells = []
    for checked in engine.checked:
        try:
            engine.check_options({option: sample(engine, option)}, checked.release)
            cells.append(checked.of(option))
        except ConfigError:
            cells.append("refused")
    return f"- `{option}`: {names} ({cells[0] if len(set(cells)) == 1 else ', '.join(cells)})\n"
