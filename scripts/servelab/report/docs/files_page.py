"""docs/reference/files.md: every file below `results/`, with its columns, types and units, or its keys."""

from __future__ import annotations

import re
import typing
from collections import Counter
from typing import Any

import pyarrow as pa

from servelab.core.files import JsonFile, JsonPart
from servelab.measure.telemetry import SOURCES
from servelab.metrics.tables import schemas
from servelab.report.docs.output_files import FILES, OutputFile

_HEAD = """\
<!-- Made by `make docs` from the JSON files' models, columns.yaml and report/docs/files.yaml; edit there. -->
# Files: every file, column, type and unit

Everything is below `results/`; [results.md](../results.md) reads it with pandas and DuckDB. A recorded study leaves in
`recorded/<study>/` what a live one leaves in `studies/<study>/`. While a file is made its name begins with a dot. A
table that a file has is in brackets.

"""

_TABLES_HEAD = """\
## Tables

In brackets are type and unit; without brackets a column is text, with a unit only it is a double. A name with `|` is
two columns. An interval is null below two starts, pairs or logs. Columns that several tables have:

"""
_JSON_HEAD = """\
## JSON files

Units are in the names. `[]` is a list; the keys of its entries follow.
"""

_REASONS = """\
A failed run's `reason` is one of: `crashed`, `out_of_memory`, `unsupported_argument`, `missing_model`,
`never_healthy`, `requests_failed`, `round_timeout`, `saturated`, `slo_missed` (a search for capacity, at its lowest
load), `below_incumbent` (one that ended at the incumbent's capacity); a candidate that could not be run at all is
`refused`, a recorded one `unsupported`, or `broken_log` if no log of it could be read.
One without a log is `not run`, with `no_log`.
"""

_UNITS = {
    "_per_s": "1/s",
    "_percent": "%",
    "_ms": "ms",
    "_s": "s",
    "_rate": "share, 0 to 1",
    "_tokens": "tokens",
    "_bytes": "bytes",
}
"""End of a column's name → unit; the first that fits."""
_OF_THE_METRIC = re.compile(
    r"(objective_|baseline_|published_|recomputed_)?(value|mean|std|minimum|median|p\d\d|maximum)|(objective_)?ci95_(low|high)"
)
_OTHER_UNITS = {
    "baseline_factor": "ratio",
    "capacity_load": "1/s, or requests",
    "edit_share": "share, 0 to 1",
    "factor": "ratio",
    "level": "that of `load`",
    "percentile": "%",
    "points": "points of percent",
    "requests_in_flight": "requests",
    "seconds": "s",
    "slo_attainment": "share, 0 to 1",
    "share_of_limit": "share, 1 is the limit",
}


def unit(column: pa.Field) -> str:
    """Unit of a column, from its name; empty where it is no quantity."""
    if not (pa.types.is_floating(column.type) or pa.types.is_integer(column.type) or pa.types.is_list(column.type)):
        return ""
    name = re.sub("_(before|after|a|b)$", "", str(column.name))
    if _OF_THE_METRIC.fullmatch(name):
        return "the metric's"
    name = re.sub("_(mean|p99|ci95_low|ci95_high)$", "", name)
    if "tokens_per_s" in name:
        return "tokens/s"
    if name in _OTHER_UNITS:
        return _OTHER_UNITS[name]
    for end, text in _UNITS.items():
        if name.endswith(end):
            return text
    return ""


def keys(*models: type[JsonPart]) -> dict[str, str]:
    """Keys of a JSON file → their meaning."""
    found: dict[str, str] = {}
    for model in models:
        for name, field in model.model_fields.items():
            part, _ = _part(field.annotation)
            found.setdefault(name, field.description or (part and _sentence(part)) or "")
    return found


def _part(annotation: Any) -> tuple[type[JsonPart] | None, bool]:
    """The `JsonPart` that a field holds, and whether it holds a list of them."""
    arguments = typing.get_args(annotation)
    for each in arguments or (annotation,):
        if isinstance(each, type) and issubclass(each, JsonPart) and not issubclass(each, JsonFile):
            return each, typing.get_origin(annotation) is list
    return None, False


def _sentence(model: type[JsonPart]) -> str:
    return (model.__doc__ or "").partition("\n")[0]


def render_docs() -> str:
    """docs/reference/files.md."""
    files = "\n".join(f"- `{file.name}`: {file.text}{_content(file)}" for file in FILES)
    parts = [f"{_HEAD}{files}\n", _REASONS, _TABLES_HEAD]
    shared = _shared_columns()
    parts.append("".join(_column_line(*column) for column in shared))
    for name, schema in schemas.TABLES.items():
        own = [column for column in _columns(schema) if column not in shared]
        others = ", ".join(f"`{column[0]}`" for column in _columns(schema) if column in shared)
        ends = ", ".join(f"`{column[0]}`" for column in own if "ci95" in column[0])
        lines = [f"- as above: {others}\n"] * bool(others)
        lines += [_column_line(*column) for column in own if "ci95" not in column[0]]
        lines += [f"- ends of 95 % intervals: {ends}\n"] * bool(ends)
        parts.append(f"### {name}\n\n{''.join(lines)}")
    parts.append(_JSON_HEAD)
    seen: dict[type[JsonPart], str] = {}
    files_with_keys = sorted((file for file in FILES if file.models), key=lambda file: file.name.endswith(_READ))
    lines = ["".join(_key_lines(file, seen)) for file in files_with_keys]
    parts += ["".join(lines[: -len(_READ)]), *lines[-len(_READ) :], _telemetry()]
    return "\n".join(parts)


def _telemetry() -> str:
    """The metrics of each source of telemetry."""
    sources = "".join(
        f"- `{each}`: {', '.join(f'`{name}`' for name in SOURCES.get(each).metrics)}\n" for each in SOURCES.names()
    )
    return f"{_TELEMETRY_HEAD}{sources}"


_TELEMETRY_HEAD = """\
## Metrics in `telemetry.parquet`

By source. Counters end in `_total`, units are in the names. [results.md](../results.md#telemetry) has notes.

"""


def _content(file: OutputFile) -> str:
    return f" ([{file.table}](#{file.table}))" if file.table else ""


Column = tuple[str, str, str]
"""Name, type with unit, meaning."""


def _columns(schema: pa.Schema) -> list[Column]:
    """Columns of a table; two that differ in their end only (`_ci95_low` and `_ci95_high`, …) are one."""
    found: dict[str, Column] = {}
    for column in schema:
        name = str(column.name)
        for first, second in _ENDS:
            name = re.sub(
                rf"({first}|{second})(?=$|_percent$|_before|_a$)", f"{first}|{second.rpartition('_')[2]}", name
            )
        kind = ", ".join(filter(None, (_TYPES.get(str(column.type), str(column.type)), unit(column))))
        found.setdefault(name, (name, kind, column.metadata[b"description"].decode()))
    return list(found.values())


_ENDS = (("_ci95_low", "_ci95_high"), ("_before", "_after"), ("_a", "_b"))
_TYPES = {"list<item: string>": "strings", "list<item: double>": "doubles", "list<item: float>": "floats"}
_TYPES |= {"list<item: bool>": "bools", "list<item: int32>": "int32s", "string": "", "double": ""}


def _shared_columns() -> list[Column]:
    """Columns that several tables have with one meaning."""
    number = Counter(column for schema in schemas.TABLES.values() for column in _columns(schema))
    return [column for column, times in number.items() if times > 1 and "ci95" not in column[0]]


def _column_line(name: str, kind: str, meaning: str) -> str:
    return f"- `{name}`{f' ({kind})' if kind else ''}: {meaning}\n"


def _key_lines(file: OutputFile, seen: dict[type[JsonPart], str]) -> list[str]:
    """The keys of a JSON file; those of `_READ` with their meaning."""
    found: dict[str, str] = {}
    for name, field in ((name, field) for model in file.models for name, field in model.model_fields.items()):
        if name not in found:
            part, is_list = _part(field.annotation)
            text = field.description or (part and _sentence(part)) or ""
            name_shown, inside = f"`{name}{'[]' * is_list}`", _inside(part, name, seen)
            if file.name.rpartition("/")[2] in _READ:
                found[name] = f"- {name_shown}: {text}{inside}\n"
            else:
                found[name] = f"{name_shown}{inside.replace(' Keys: as', ' as').replace(' Keys:', ':').rstrip('.')}; "
    lines = list(found.values())
    if file.name.rpartition("/")[2] in _READ:
        return [f"### `{file.name}`\n\n", *lines]
    return [f"- `{file.name}`: {''.join(lines).rstrip('; ')}\n"]


_READ = ("status.json", "recommended.json")
"""Files that scripts of users read most."""


def _inside(part: type[JsonPart] | None, path: str, seen: dict[type[JsonPart], str]) -> str:
    """Names of the keys of a part, and of the parts in it."""
    if part is None:
        return ""
    if part in seen:
        return f" Keys: as `{seen[part]}`."
    seen[part] = path
    names, inside = [], ""
    for name, field in part.model_fields.items():
        below, is_list = _part(field.annotation)
        names.append(f"`{name}{'[]' * is_list}`")
        if below is not None and below not in seen:
            inside += f" In `{name}`:" + _inside(below, f"{path}.{name}", seen).removeprefix(" Keys:")
    return f" Keys: {', '.join(names)}.{inside}"
