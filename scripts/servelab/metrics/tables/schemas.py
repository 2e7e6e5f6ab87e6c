"""The schema of every table this workflow writes, from `columns.yaml` beside this file."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from servelab.core.yaml_file import read_shipped

_ALL: dict[str, dict[str, str]] = read_shipped(Path(__file__).with_name("columns.yaml"))


def _schema(columns: dict[str, str]) -> pa.Schema:
    """A schema from column → `type; meaning`; the meaning is the column's description."""
    split = [(name, *text.split("; ", 1)) for name, text in columns.items()]
    return pa.schema([pa.field(name, _type(kind), metadata={"description": text}) for name, kind, text in split])


def _type(kind: str) -> pa.DataType:
    of = pa.type_for_alias(kind.removeprefix("list of "))
    return pa.list_(of) if kind.startswith("list of ") else of


TURNS = _schema(_ALL.pop("turns"))
"""Further columns of a workload whose requests have several messages."""
ASKED = _schema(_ALL.pop("asked"))
"""Further columns of a workload of questions; `prompt` is a column of every workload."""
TABLES = {name: _schema(columns) for name, columns in _ALL.items()}
"""Every table by name; docs/reference/files.md is generated from it."""

WORKLOAD_REQUESTS = TABLES["workload_requests"]
RUN_REQUESTS = TABLES["run_requests"]
RUN_ANSWERS = TABLES["run_answers"]
STAGE_ANSWERS = TABLES["stage_answers"]
METRICS = TABLES["metrics"]
ROUNDS = TABLES["rounds"]
STAGE_TABLE = TABLES["stage_table"]
SEARCH = TABLES["search"]
IMPROVEMENTS = TABLES["improvements"]
CURVES = TABLES["curves"]
HISTORY = TABLES["history"]
ANSWERS = TABLES["answers"]
COMPARISON = TABLES["comparison"]
CHECKS = TABLES["checks"]
TELEMETRY = TABLES["telemetry"]
DEVICE_SERIES = TABLES["device_series"]
CLAIMS = TABLES["claims"]
