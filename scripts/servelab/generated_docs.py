"""Documents made from the types, so that neither can drift from the other; a test compares them with the files."""

from __future__ import annotations

import json
import typing
from typing import Any

from pydantic.fields import FieldInfo

from servelab import schemas
from servelab.metrics import render_docs as render_metrics
from servelab.recorded.study import RecordedStudy
from servelab.site import CheapRules, Placement, Site
from servelab.spec import HubSource, PackageSource, PathSource, ProtocolSpec, RoundsSpec, Strict
from servelab.study import (
    Candidate,
    Engine,
    Hardware,
    Model,
    ModelVariant,
    Objective,
    Stage,
    Study,
)
from servelab.support import render_docs as render_support
from servelab.validity import render_docs as render_validity

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
    ("`protocol.rounds`", RoundsSpec),
    ("`stages`", Stage),
    ("`baseline` and `stages.candidates`", Candidate),
)

SITE_SECTIONS: tuple[tuple[str, type[Strict]], ...] = (
    ("Site", Site),
    ("`accelerators.<name>` and `devices.<kind>`", Placement),
    ("`cheap_rules`", CheapRules),
)

SITES_HEAD = """\
<!-- Made by `make docs` from scripts/servelab/site.py; edit there. -->
# Sites: what a cluster calls things

One file in `config/sites/` says once how your cluster names its partitions and accelerators, so that no study does.
Copy `config/sites/example.yaml`, and choose it with `site: <name>` in `config/config.yaml` or `--config site=<name>`;
[cluster.md](cluster.md) goes through it. Nothing of it is part of a run's identity: another partition, account or time
limit reruns nothing. Editors that know JSON Schema check the file against `config/schema/site.schema.json`.
"""

STUDIES_HEAD = """\
<!-- Made by `make docs` from scripts/servelab/study.py; edit there. -->
# Studies: what you write

One file in `config/studies/` is one question: which serving configuration is best for this model on this hardware?
Copy `config/studies/cpu-smollm2.yaml`, write your model, engines and stages in it, and name it in
`config/config.yaml`. Nothing starts before the file is right: a wrong key, type or name ends in one line with file,
key and the nearest valid name. Editors that know JSON Schema check it while you type against
`config/schema/study.schema.json`.

Everything that can change a measurement is part of a run's identity; labels, titles, comments and the order of keys
are not. See [architecture](architecture.md).
"""

OUTPUT_HEAD = """\
<!-- Made by `make docs` from scripts/servelab/schemas.py; edit there. -->
# Output: every file, column, type and unit

Everything lies below `results/`.

| file | what it is |
|---|---|
| `runs/<run_id>/spec.json` | everything that can change the measurement; its hash is the run's name |
| `runs/<run_id>/status.json` | outcome, and for a failure its reason and telling log lines |
| `runs/<run_id>/requests.parquet` | a row a request, the raw records every figure is computed from |
| `runs/<run_id>/telemetry.parquet` | what machine, accelerators and server did in each round |
| `runs/<run_id>/server.log` | what the server printed |
| `runs/<run_id>/mindie.json` | what MindIE was configured with, where it served |
| `runs/<run_id>/extra_llm_api_options.yaml` | what TensorRT-LLM was told beside its flags, if anything |
| `runs/<run_id>/manifest.json` | the machine and the devices it had, the command, versions and hashes |
| `pairs/<pair_id>/{a,b}/` | incumbent and candidate of a pair measured again, each with the files of a run |
| `pairs/<pair_id>/{pair,status}.json` | both specifications; the order, and whether a side failed |
| `studies/<study>/preflight.json` | what could be told before it was measured, a row a check and candidate |
| `studies/<study>/stages/<stage>/pair.json` | who is measured again, where the study asks for that |
| `studies/<study>/stages/<stage>/plan.json` | candidates of a stage and their runs |
| `studies/<study>/stages/<stage>/table.parquet` | a row a candidate and workload |
| `studies/<study>/stages/<stage>/{metrics,rounds}.parquet` | metrics of its runs, and their values in each round |
| `studies/<study>/stages/<stage>/checks.parquet` | what the checks made of its runs |
| `studies/<study>/stages/<stage>/timeline.parquet` | requests in flight and tokens over the time of each round |
| `studies/<study>/stages/<stage>/decision.json` | who won the stage, and why |
| `studies/<study>/metrics.parquet` | every metric of every run of the study |
| `studies/<study>/checks.parquet` | every check of every run of the study |
| `studies/<study>/improvements.parquet` | percentages against the baseline |
| `studies/<study>/recommended.json` | the serving command to use, and its gain on every workload |
| `studies/<study>/answers/<versions_id>.json` | that answer under each set of versions of the engines |
| `studies/<study>/answers.parquet` | these answers, a row each |
| `studies/<study>/history.parquet` | each configuration at two versions of its engine |
| `studies/<study>/report.{html,md}`, `charts/` | the report and its charts |
| `recorded/<study>/` | a recorded study's files: the same as a live study's, and those below |
| `recorded/<study>/claims.parquet` | what was published, computed again from the logs |
| `recorded/<study>/logs/` | a copy of the logs |

A failed run's `reason` is one of: `crashed`, `out_of_memory`, `unsupported_argument`, `missing_model`,
`never_healthy`, `requests_failed`, `round_timeout`, `saturated`; a candidate that could not be run at all is `refused`,
a recorded one `unsupported`.
"""


def documents() -> dict[str, str]:
    """Text of every generated file by its path from the root of the project."""
    return {
        "config/schema/study.schema.json": _json_schema(Study),
        "config/schema/recorded.schema.json": _json_schema(RecordedStudy),
        "config/schema/site.schema.json": _json_schema(Site),
        "docs/studies.md": _keys(STUDIES_HEAD, SECTIONS),
        "docs/sites.md": _keys(SITES_HEAD, SITE_SECTIONS),
        "docs/metrics.md": render_metrics(),
        "docs/validity.md": render_validity(),
        "docs/support.md": render_support(),
        "docs/output.md": _output(),
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
    return f"| `{name}` | {_type_name(field.annotation)} | {default} | {meaning} |"


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
    if origin is list:
        return f"list of {_type_name(arguments[0])}"
    if origin is dict:
        return f"mapping of {_type_name(arguments[1])}"
    if arguments:
        return " or ".join(_type_name(argument) for argument in arguments if argument is not type(None))
    names: dict[Any, str] = {str: "text", int: "integer", float: "number", bool: "true or false", type(None): "null"}
    return names.get(annotation) or str(annotation.__name__)


def _output() -> str:
    parts = [OUTPUT_HEAD]
    for name, schema in schemas.TABLES.items():
        rows = "\n".join(
            f"| `{field.name}` | {field.type} | {(field.metadata or {})[b'description'].decode()} |" for field in schema
        )
        parts.append(f"## {name}\n\n| column | type | meaning |\n|---|---|---|\n{rows}\n")
    return "\n".join(parts)
