"""docs/reference/files.md: every file below `results/`, with its columns and types, or its keys."""

from __future__ import annotations

import re
import typing
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from servelab.assets.pinned_file import StoredDataset, StoredModel, StoredWorkload
from servelab.core.files import JsonFile, JsonPart
from servelab.core.run_spec import RunSpec
from servelab.core.yaml_file import read_yaml
from servelab.engines.runtimes import Environment
from servelab.measure.environment_gate import CheckedEnvironment
from servelab.measure.run_files import ImportedRun, RunManifest, RunStatus
from servelab.measure.telemetry import SOURCES
from servelab.metrics.tables import schemas
from servelab.search.decision import Decision
from servelab.search.recommended import Recommended
from servelab.search.versions import StudyAnswer
from servelab.study.plan import Plan
from servelab.study.project import StudySummary
from servelab.study.recorded.plan import RecordedPlan

_MODELS: dict[str, type[JsonFile]] = {
    model.__name__: model
    for model in (
        *(CheckedEnvironment, Decision, Environment, ImportedRun, Plan, Recommended, RecordedPlan, RunManifest),
        *(RunSpec, RunStatus, StoredDataset, StoredModel, StoredWorkload, StudyAnswer, StudySummary),
    )
}


@dataclass(frozen=True)
class OutputFile:
    """A file, or all files below a folder where the name ends with `/`."""

    name: str
    """Below `results/`; `<…>` stands for one name, `{a,b}` for either."""
    text: str
    table: str | None = None
    """Its columns: a name of schemas.TABLES."""
    models: tuple[str, ...] = ()
    """Models of a JSON file; several if a live and a recorded study differ."""

    @property
    def types(self) -> list[type[JsonFile]]:
        """The models."""
        return [_MODELS[name] for name in self.models]

    def matches(self, path: str) -> bool:
        """Whether a path below `results/` is this file, or lies in this folder."""
        pattern = re.sub(r"<[^>]+>", "[^/]+", re.escape(self.name))
        pattern = re.sub(r"\\{(.+?),(.+?)\\}", r"(?:\1|\2)", pattern)
        return re.fullmatch(pattern + (".*" if self.name.endswith("/") else ""), path) is not None


FILES = tuple(OutputFile(**row) for row in read_yaml(Path(__file__).with_name("files.yaml")))
"""All of them, in the order of the page; a recorded study leaves in `recorded/` what a live one does in `studies/`."""


def named(path: str) -> OutputFile | None:
    """The entry of a path below `results/`; None for one that the page does not name."""
    live = re.sub("^recorded/", "studies/", path)
    return next((file for each in (path, live) for file in FILES if file.matches(each)), None)


_HEAD = """\
<!-- Made by `make docs` from the JSON files' models, columns.yaml and report/files.yaml; edit there. -->
# Files: every file, column and type

Everything is below `results/`; [results.md](../results.md) reads it with pandas and DuckDB. A recorded study leaves in
`recorded/<study>/` what a live one leaves in `studies/<study>/`. While a file is made its name begins with a dot. A
table that a file has is in brackets.

"""
_REASONS = """
A failed run's `reason` is one of: `crashed`, `out_of_memory`, `unsupported_argument`, `missing_model`,
`never_healthy`, `requests_failed`, `round_timeout`, `saturated`, `slo_missed` (a search for capacity, at its lowest
load), `below_incumbent` (one that ended at the incumbent's capacity); a candidate that could not be run at all is
`refused`, a recorded one `unsupported`, or `broken_log` if no log of it could be read.
One without a log is `not run`, with `no_log`.

## Tables

In brackets is the type; without brackets a column is text. Units are in the names; `value`, `mean` and the like are in
the metric's. A name with `|` is two columns. An interval is null below two starts, pairs or logs. Columns that several
tables have:

"""
_JSON_HEAD = """
## JSON files

Units are in the names.

"""
_TELEMETRY_HEAD = """
## Metrics in `telemetry.parquet`

By source. Counters end in `_total`, units are in the names. [results.md](../results.md#telemetry) has notes.

"""
_READ = ("status.json", "recommended.json")
"""Files that scripts of users read most: their keys are described."""


def render_docs() -> str:
    """docs/reference/files.md."""
    files = [
        f"- `{file.name}`: {file.text}{f' ([{file.table}](#{file.table}))' * bool(file.table)}\n" for file in FILES
    ]
    columns = {name: _columns(schema) for name, schema in schemas.TABLES.items()}
    number = Counter(column for of_table in columns.values() for column in of_table)
    shared = [column for column, times in number.items() if times > 1 and "ci95" not in column[0]]
    parts = [_HEAD, *files, _REASONS, *map(_column_line, shared)]
    for name, of_table in columns.items():
        above = ", ".join(f"`{column[0]}`" for column in of_table if column in shared)
        own = [column for column in of_table if column not in shared]
        ends = ", ".join(f"`{column[0]}`" for column in own if "ci95" in column[0])
        parts += [f"\n### {name}\n\n", f"- as above: {above}\n" * bool(above)]
        parts += [_column_line(column) for column in own if "ci95" not in column[0]]
        parts.append(f"- ends of 95 % intervals: {ends}\n" * bool(ends))
    of_json = [file for file in FILES if file.models]
    parts += [_JSON_HEAD, *(_keys(file) for file in of_json if not file.name.endswith(_READ))]
    parts += [_described(file) for file in of_json if file.name.endswith(_READ)]
    sources = {name: ", ".join(f"`{each}`" for each in SOURCES.get(name).metrics) for name in SOURCES.names()}
    return "".join([*parts, _TELEMETRY_HEAD, *(f"- `{name}`: {metrics}\n" for name, metrics in sources.items())])


Column = tuple[str, str, str]
"""Name, type, meaning."""
_ENDS = (("_ci95_low", "_ci95_high"), ("_before", "_after"), ("_a", "_b"))
_TYPES = {"list<item: string>": "strings", "list<item: double>": "doubles", "list<item: float>": "floats"}
_TYPES |= {"list<item: bool>": "bools", "list<item: int32>": "int32s", "string": ""}


def _columns(schema: pa.Schema) -> list[Column]:
    """Columns of a table; two that differ in their end only (`_ci95_low` and `_ci95_high`, …) are one."""
    found: dict[str, Column] = {}
    for column in schema:
        name = str(column.name)
        for first, second in _ENDS:
            both = f"{first}|{second.rpartition('_')[2]}"
            name = re.sub(rf"({first}|{second})(?=$|_percent$|_before|_a$)", both, name)
        kind = _TYPES.get(str(column.type), str(column.type))
        found.setdefault(name, (name, kind, column.metadata[b"description"].decode()))
    return list(found.values())


def _column_line(column: Column) -> str:
    name, kind, meaning = column
    return f"- `{name}`{f' ({kind})' if kind else ''}: {meaning}\n"


def _keys(file: OutputFile) -> str:
    """Names of a JSON file's keys, with those of their parts."""
    fields = {name: field for model in file.types[::-1] for name, field in model.model_fields.items()}
    keys = [f"`{name}`{_inside(field.annotation, ' ({})')}" for name, field in fields.items()]
    return f"- `{file.name}`: {', '.join(keys)}\n"


def _described(file: OutputFile) -> str:
    """A JSON file's keys with their meaning."""
    lines = []
    for name, field in file.types[0].model_fields.items():
        part = _part(field.annotation)
        text = field.description or ((part and part.__doc__) or "").partition("\n")[0]
        lines.append(f"- `{name}`: {text}{_inside(field.annotation, ' Keys: {}.')}\n")
    return "".join([f"\n### `{file.name}`\n\n", *lines])


def _part(annotation: Any) -> type[JsonPart] | None:
    """The `JsonPart` that a field holds, or holds a list of."""
    found = (each for each in typing.get_args(annotation) or (annotation,) if isinstance(each, type))
    return next((each for each in found if issubclass(each, JsonPart) and not issubclass(each, JsonFile)), None)


def _inside(annotation: Any, words: str) -> str:
    part = _part(annotation)
    return "" if part is None else words.format(", ".join(f"`{name}`" for name in part.model_fields))
