"""Documents made from the types, so that neither can drift from the other; a test compares them with the files."""

from __future__ import annotations

import json
import typing
from typing import Any

from pydantic import BeforeValidator
from pydantic.fields import FieldInfo

from servelab.core.run_spec import HubSource, PackageSource, PathSource, ProtocolSpec, Strict
from servelab.core.ssh_signature import SigningKey
from servelab.engines.support_table import render_docs as render_support
from servelab.metrics.definitions import render_docs as render_metrics
from servelab.report.docs.output_files import render_docs as render_output
from servelab.report.docs.physical_limit import render_docs as render_limit
from servelab.results.checks import render_docs as render_validity
from servelab.study.recorded.study import RecordedStudy
from servelab.study.search_keys import Search, StopWhen
from servelab.study.site import CheapRules, Placement, Site
from servelab.study.study import (
    Answers,
    Candidate,
    Engine,
    Hardware,
    Model,
    ModelVariant,
    Objective,
    Stage,
    Study,
)
from servelab.study.workload_loads import StudyWorkload

SECTIONS: tuple[tuple[str, type[Strict]], ...] = (
    ("Study", Study),
    ("`model`", Model),
    ("`model.variants.<name>`", ModelVariant),
    ("`source` of kind `hub`", HubSource),
    ("`source` of kind `package`", PackageSource),
    ("`source` of kind `path`", PathSource),
    ("`hardware`", Hardware),
    ("`engines.<name>`", Engine),
    ("`objective`", Objective),
    ("`protocol`", ProtocolSpec),
    ("`workloads`", StudyWorkload),
    ("`answers`", Answers),
    ("`search`", Search),
    ("`search.stop_when`", StopWhen),
    ("`stages`", Stage),
    ("`baseline` and `stages.candidates`", Candidate),
)

SITE_SECTIONS: tuple[tuple[str, type[Strict]], ...] = (
    ("Site", Site),
    ("`accelerators.<name>` and `devices.<kind>`", Placement),
    ("`cheap_rules`", CheapRules),
    ("`sign`", SigningKey),
)

SITES_HEAD = """\
<!-- Made by `make docs` from scripts/servelab/study/site.py; edit there. -->
# Sites: what a cluster calls things

One file in `config/sites/` says once how your cluster names its partitions and accelerators, so that no study does.
Copy `config/sites/example.yaml`, and install a profile with it (`python scripts/install_profile.py <name>`);
[cluster.md](cluster.md) goes through it. Nothing of it is part of a run's identity: another partition, account or time
limit reruns nothing. Editors with a YAML language server check the file against the schema that its first line names,
`config/schema/site.schema.json`.
"""

STUDIES_HEAD = """\
<!-- Made by `make docs` from scripts/servelab/study/study.py; edit there. -->
# Studies: what you write

One file in `config/studies/` is one question: which serving configuration is best for this model on this hardware?
Copy `config/studies/cpu-smollm2.yaml`, write your model, engines and stages in it, and name it in
`config/config.yaml`. Nothing starts before the file is right: a wrong key, type or name ends in one line with file,
key and the nearest valid name. Editors with a YAML language server check it while you type against
the schema that its first line names, `config/schema/study.schema.json`.

Everything that can change a measurement is part of a run's identity; labels, titles, comments and the order of keys
are not. See [architecture](architecture.md).
"""


def documents() -> dict[str, str]:
    """Text of every generated file by its path from the root of the project."""
    return {
        "config/schema/study.schema.json": _json_schema(Study),
        "config/schema/recorded.schema.json": _json_schema(RecordedStudy),
        "config/schema/site.schema.json": _json_schema(Site),
        "docs/studies.md": _keys(STUDIES_HEAD, SECTIONS),
        "docs/sites.md": _keys(SITES_HEAD, SITE_SECTIONS),
        "docs/metrics.md": f"{render_metrics()}\n{render_limit()}",
        "docs/validity.md": render_validity(),
        "docs/support.md": render_support(),
        "docs/output.md": render_output(),
    }


def _json_schema(model: type[Strict]) -> str:
    return json.dumps(model.model_json_schema(), indent=2, ensure_ascii=False) + "\n"


def _keys(head: str, sections: tuple[tuple[str, type[Strict]], ...]) -> str:
    parts = [head]
    for title, model in sections:
        rows = "\n".join(_field_row(name, field) for name, field in model.model_fields.items())
        parts.append(
            f"## {title}\n\n{_summary(model)}\n\n| key | type | default | meaning |\n|---|---|---|---|\n{rows}\n"
        )
    return "\n".join(parts)


def _summary(model: type[Strict]) -> str:
    return (model.__doc__ or "").strip().splitlines()[0]


def _field_row(name: str, field: FieldInfo) -> str:
    default = "required" if field.is_required() else _default(field.get_default(call_default_factory=True))
    meaning = field.description or _described_by_type(field.annotation)
    return f"| `{name}` | {_type_name(_written(field))} | {default} | {meaning} |"


def _written(field: FieldInfo) -> Any:
    """The type that a user writes: a mapping by name may be written as a list."""
    given = [each.json_schema_input_type for each in field.metadata if isinstance(each, BeforeValidator)]
    is_list = given and typing.get_origin(given[0]) is list and typing.get_origin(field.annotation) is dict
    return given[0] if is_list else field.annotation


def _default(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, Strict):
        return "see below"
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
