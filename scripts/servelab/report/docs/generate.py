"""Documents made from the types, so that neither can drift from the other; a test compares them with the files."""

from __future__ import annotations

import json
import typing
from typing import Any

from pydantic import BeforeValidator
from pydantic.fields import FieldInfo

from servelab.core.run_spec import HubSource, PackageSource, PathSource, ProtocolSpec, Strict
from servelab.core.ssh_signature import SigningKey
from servelab.metrics.definitions import render_docs as render_metrics
from servelab.report.docs.engine_options import render_docs as render_options
from servelab.report.docs.files_page import render_docs as render_files
from servelab.report.docs.physical_limit import render_docs as render_limit
from servelab.report.json_output import render_docs as render_json
from servelab.results.checks import render_docs as render_checks
from servelab.study.recorded.study import RecordedStudy
from servelab.study.search_keys import Answers, Budget, SearchKeys
from servelab.study.site import Placement, Site
from servelab.study.study import (
    Candidate,
    Model,
    ModelVariant,
    Objective,
    Stage,
    Study,
    StudyEngine,
    StudyHardware,
)
from servelab.study.workload_loads import StudyWorkload

SECTIONS: tuple[tuple[str, type[Strict]], ...] = (
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
)

SITE_SECTIONS: tuple[tuple[str, type[Strict]], ...] = (
    ("Site: a file of `config/sites/`", Site),
    ("`accelerators.<name>` and `devices.<kind>`", Placement),
    ("`sign`", SigningKey),
)

KEYS_HEAD = """\
<!-- Made by `make docs` from scripts/servelab/study/study.py and site.py; edit there. -->
# Keys of a study and of a site

[studies.md](../studies.md) and [cluster.md](../cluster.md) go through them. In brackets are type and default; a key
without a default is optional.
"""


def documents() -> dict[str, str]:
    """Text of every generated file by its path from the root of the project."""
    return {
        "config/schema/study.schema.json": _json_schema(Study),
        "config/schema/recorded.schema.json": _json_schema(RecordedStudy),
        "config/schema/site.schema.json": _json_schema(Site),
        "docs/reference/keys.md": _keys(),
        "docs/reference/metrics.md": f"{render_metrics()}\n{render_limit()}",
        "docs/reference/checks.md": render_checks(),
        "docs/reference/options.md": render_options(),
        "docs/reference/files.md": render_files(),
        "docs/reference/json.md": render_json(),
    }


def _json_schema(model: type[Strict]) -> str:
    return json.dumps(model.model_json_schema(), indent=2, ensure_ascii=False) + "\n"


LIKE: dict[type[Strict], type[Strict]] = {ModelVariant: Model, StudyWorkload: ProtocolSpec}
"""Section → an earlier one. Keys that both have are only named."""


def _keys() -> str:
    parts = [KEYS_HEAD]
    for title, model in (*SECTIONS, *SITE_SECTIONS):
        alike = LIKE[model].model_fields if model in LIKE else {}
        lines = [_field_line(name, field) for name, field in model.model_fields.items() if name not in alike]
        same = ", ".join(f"`{name}`" for name in model.model_fields if name in alike)
        lines += [f"- as above: {same}\n"] if same else []
        parts.append(f"## {title}\n\n{_summary(model)}\n\n{''.join(lines)}")
    return "\n".join(parts)


def _summary(model: type[Strict]) -> str:
    return (model.__doc__ or "").strip().splitlines()[0]


def _field_line(name: str, field: FieldInfo) -> str:
    default = "required" if field.is_required() else _default(field.get_default(call_default_factory=True))
    kind = ", ".join(filter(None, (_type_name(_written(field)), default)))
    meaning = field.description or _described_by_type(field.annotation)
    return f"- `{name}` ({kind}){f': {meaning}' if meaning else ''}\n"


def _written(field: FieldInfo) -> Any:
    """The type that a user writes: a mapping by name may be written as a list."""
    given = [each.json_schema_input_type for each in field.metadata if isinstance(each, BeforeValidator)]
    is_list = given and typing.get_origin(given[0]) is list and typing.get_origin(field.annotation) is dict
    return given[0] if is_list else field.annotation


def _default(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, Strict):
        return ""
    return f"`{json.dumps(value)}`"


def _described_by_type(annotation: Any) -> str:
    for model in (annotation, *typing.get_args(annotation)):
        if isinstance(model, type) and issubclass(model, Strict):
            return _summary(model)
    return ""


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
