"""docs/reference/files.md: every file below `results/`, with its columns and types, or its keys."""

from __future__ import annotations

import re
import typing
from collections import Counter
from collections.abc import Iterator
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
from servelab.report.page import render_markdown
from servelab.search.decision import Decision
from servelab.search.recommended import Recommended
from servelab.search.versions import StudyAnswer
from servelab.study.plan import Plan
from servelab.study.predictions import Predictions
from servelab.study.project import StudySummary
from servelab.study.recorded.plan import RecordedPlan

_MODELS: dict[str, type[JsonFile]] = {
    model.__name__: model
    for model in (
        *(CheckedEnvironment, Decision, Environment, ImportedRun, Plan, Predictions, Recommended, RecordedPlan),
        *(RunManifest, RunSpec, RunStatus, StoredDataset, StoredModel, StoredWorkload, StudyAnswer, StudySummary),
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


FILES = tuple(OutputFile(**row) for row in read_yaml(Path(__file__).with_name("files.yaml")))
"""All of them, in the order of the page; a recorded study leaves in `recorded/` what a live one does in `studies/`."""

_READ = ("status.json", "recommended.json")
"""Files that scripts of users read most: their keys are described."""


def render_docs() -> str:
    """docs/reference/files.md."""
    files = [
        f"- `{file.name}`: {file.text}{f' ([{file.table}](#{file.table}))' * bool(file.table)}\n" for file in FILES
    ]
    of_json = [file for file in FILES if file.models]
    keys = [_keys(file) for file in of_json if not file.name.endswith(_READ)]
    keys += [_described(file) for file in of_json if file.name.endswith(_READ)]
    sources = {name: ", ".join(f"`{each}`" for each in SOURCES.get(name).metrics) for name in SOURCES.names()}
    lines = {"sources": [f"- `{name}`: {metrics}\n" for name, metrics in sources.items()]}
    lines |= {"files": files, "columns": list(_column_lines()), "keys": keys}
    return render_markdown("files.md.j2", {name: "".join(each) for name, each in lines.items()})


def _column_lines() -> Iterator[str]:
    """The columns that several tables have, and then a section for each table."""
    columns = {name: _columns(schema) for name, schema in schemas.TABLES.items()}
    number = Counter(column for of_table in columns.values() for column in of_table)
    shared = [column for column, times in number.items() if times > 1 and "ci95" not in column[0]]
    yield from map(_column_line, shared)
    for name, of_table in columns.items():
        above = ", ".join(f"`{column[0]}`" for column in of_table if column in shared)
        own = [column for column in of_table if column not in shared]
        ends = ", ".join(f"`{column[0]}`" for column in own if "ci95" in column[0])
        yield f"\n### {name}\n\n" + f"- as above: {above}\n" * bool(above)
        yield from (_column_line(column) for column in own if "ci95" not in column[0])
        yield f"- ends of 95 % intervals: {ends}\n" * bool(ends)


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
