"""Every file that a study leaves below `results/`: its content and columns or keys. Makes docs/reference/files.md."""

from __future__ import annotations

import re
import typing
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from servelab.assets.pinned_file import StoredDataset, StoredModel, StoredWorkload
from servelab.core.files import JsonFile, JsonPart
from servelab.core.run_spec import RunSpec
from servelab.engines.runtimes import Environment
from servelab.measure.environment_gate import CheckedEnvironment
from servelab.measure.run_files import ImportedRun, RunManifest, RunStatus, SignedRun
from servelab.measure.telemetry import SOURCES
from servelab.metrics.tables import schemas
from servelab.search.decision import Decision
from servelab.search.kept_answers import Answer
from servelab.search.recommended import Recommended
from servelab.study.plan import Plan
from servelab.study.project import StudySummary
from servelab.study.recorded.plan import RecordedPlan


@dataclass(frozen=True)
class OutputFile:
    """A file, or all files below a folder where the name ends with `/`."""

    name: str
    """Below `results/`; `<…>` stands for one name, `{a,b}` for either."""
    text: str
    table: str | None = None
    """Its columns: a name of schemas.TABLES."""
    models: tuple[type[JsonFile], ...] = ()
    """What a JSON file holds; several if a live and a recorded study differ."""

    def matches(self, path: str) -> bool:
        """Whether a path below `results/` is this file, or lies in this folder."""
        parts = re.split(r"(<[^>]+>|\{[^}]+\})", self.name)
        pattern = "".join(_pattern(part) for part in parts)
        return re.fullmatch(pattern + (".*" if self.name.endswith("/") else ""), path) is not None


def _pattern(part: str) -> str:
    if part.startswith("<"):
        return "[^/]+"
    if part.startswith("{"):
        return f"(?:{'|'.join(re.escape(each) for each in part[1:-1].split(','))})"
    return re.escape(part)


_STAGE = "studies/<study>/stages/<stage>/"

FILES: tuple[OutputFile, ...] = (
    OutputFile("index.{html,md}", "all studies: what each found, and its report"),
    OutputFile(
        "runs/<run_id>/spec.json",
        "everything that can change the measurement; its hash is the run's name",
        models=(RunSpec,),
    ),
    OutputFile(
        "runs/<run_id>/status.json",
        "outcome; for a failure its reason and the log lines that explain it; the run's seal",
        models=(RunStatus,),
    ),
    OutputFile(
        "runs/<run_id>/requests.parquet",
        "a row a request, the raw records every figure is computed from",
        "run_requests",
    ),
    OutputFile(
        "runs/<run_id>/steps.parquet",
        "of a run that searched for its capacity: the requests of all its steps, each as a round",
        "run_requests",
    ),
    OutputFile(
        "runs/<run_id>/answers.parquet",
        "of a run that was asked questions: what was asked and answered, a row a question",
        "run_answers",
    ),
    OutputFile(
        "runs/<run_id>/telemetry.parquet", "what machine, accelerators and server did in each round", "telemetry"
    ),
    OutputFile(
        "runs/<run_id>/manifest.json",
        "the machine and the devices it had, the command, versions and hashes",
        models=(RunManifest,),
    ),
    OutputFile(
        "runs/<run_id>/server.log",
        "what the server printed, without credentials; of more than 8 MiB the first and the last half of that",
    ),
    OutputFile(
        "runs/<run_id>/signed.json",
        "what was measured, if a key signs runs (archive.md); its signature is `signed.json.sig`",
        models=(SignedRun,),
    ),
    OutputFile("runs/<run_id>/signed.json.sig", "its signature"),
    OutputFile(
        "runs/<run_id>/imported.json",
        "from which archive the run was restored; a run that was measured here has none",
        models=(ImportedRun,),
    ),
    OutputFile("runs/set-aside/", "runs whose files were not those of their seal; may be deleted at any time"),
    OutputFile(
        "studies/<study>/preflight.json",
        "what could be told before it was measured: a list, a row a check and candidate",
    ),
    OutputFile("studies/<study>/study.json", "the study, with titles of its workloads", models=(StudySummary,)),
    OutputFile(f"{_STAGE}plan.json", "candidates of a stage and their runs", models=(Plan, RecordedPlan)),
    OutputFile(f"{_STAGE}table.parquet", "a row a candidate and workload", "stage_table"),
    OutputFile(
        f"{_STAGE}points.parquet",
        "a row a candidate and point at which nothing is decided: of the curve that decides; if recorded, of all",
        "stage_table",
    ),
    OutputFile(f"{_STAGE}metrics.parquet", "metrics of its runs", "metrics"),
    OutputFile(f"{_STAGE}rounds.parquet", "their values in each round", "rounds"),
    OutputFile(f"{_STAGE}checks.parquet", "what the checks made of its runs", "checks"),
    OutputFile(f"{_STAGE}timeline.parquet", "requests in flight and tokens over the time of each round", "timeline"),
    OutputFile(
        f"{_STAGE}answers.parquet",
        "answers of its candidates beside the baseline's; empty if nothing was asked",
        "stage_answers",
    ),
    OutputFile(f"{_STAGE}decision.json", "who won the stage, and why", models=(Decision,)),
    OutputFile("studies/<study>/metrics.parquet", "every metric of every run of the study", "metrics"),
    OutputFile("studies/<study>/checks.parquet", "every check of every run of the study", "checks"),
    OutputFile("studies/<study>/improvements.parquet", "percentages against the baseline", "improvements"),
    OutputFile(
        "studies/<study>/recommended.json",
        "the serving command to use, and its gain on every workload",
        models=(Recommended,),
    ),
    OutputFile(
        "studies/<study>/answers/<versions_id>.json",
        "that answer under each set of versions of the engines",
        models=(Answer,),
    ),
    OutputFile("studies/<study>/answers.parquet", "these answers, a row each", "answers"),
    OutputFile("studies/<study>/history.parquet", "each configuration at two versions of its engine", "history"),
    OutputFile("studies/<study>/curves.parquet", "each configuration at each point of each curve", "curves"),
    OutputFile("studies/<study>/report.{html,md}", "the report"),
    OutputFile("studies/<study>/charts/", "its charts, each as SVG, PNG and Vega-Lite JSON"),
    OutputFile("studies/<study>/tables/", "every table of the report, as CSV and as Parquet"),
    OutputFile(
        "studies/<study>/search.parquet", "every candidate: tried, failed or not run, why, and what it took", "search"
    ),
    OutputFile("studies/<study>/distributions.parquet", "latencies of its runs by percentile", "distributions"),
    OutputFile("studies/<study>/device_series.parquet", "telemetry of the accelerators over time", "device_series"),
    OutputFile("recorded/<study>/claims.parquet", "what was published, computed again from the logs", "claims"),
    OutputFile("recorded/<study>/logs/", "a copy of the logs"),
    OutputFile(
        "comparisons/<a>--<b>/comparison.parquet",
        "two studies side by side, a row a pair of runs and metric",
        "comparison",
    ),
    OutputFile("comparisons/<a>--<b>/comparison.{html,md}", "the same to read"),
    OutputFile("archives/", "archives of studies (archive.md)"),
    OutputFile(
        "workloads/<workload_id>/requests.parquet",
        "the exact requests, for every engine; questions have `question`, `expected`, `grader` and `stop` besides",
        "workload_requests",
    ),
    OutputFile("workloads/<workload_id>/workload.json", "what they are", models=(StoredWorkload,)),
    OutputFile("datasets/<dataset>-<sha256>/dataset.json", "a dataset: source, hash, licence", models=(StoredDataset,)),
    OutputFile("datasets/<dataset>-<sha256>/", "the dataset itself; 12 characters of its sha256"),
    OutputFile("models/<model>/model.json", "a model's files", models=(StoredModel,)),
    OutputFile("models/<model>/", "weights and tokenizer"),
    OutputFile(
        "envs/<tool>-<lock>/environment.json", "an engine's or a load client's environment", models=(Environment,)
    ),
    OutputFile(
        "envs/<tool>-<lock>/checked-<model>-<settings>.json",
        "that it can serve a model with what studies set (engines.md)",
        models=(CheckedEnvironment,),
    ),
    OutputFile("envs/<tool>-<lock>/", "the environment itself"),
    OutputFile("logs/", "what each job printed"),
    OutputFile("bench/", "figures of `make bench` (evidence.md)"),
)
"""All of them, in the order of the page; a recorded study leaves in `recorded/` what a live one does in `studies/`."""

_HEAD = """\
<!-- Made by `make docs` from the models of the JSON files, schemas.py and report/docs/output_files.py; edit there. -->
# Files: every file, column, type and unit

Everything is below `results/`; [results.md](../results.md) reads it with pandas and DuckDB. A recorded study leaves in
`recorded/<study>/` what a live one leaves in `studies/<study>/`. While a file is made its name begins with a dot. A
table that a file has is in brackets.

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


def named(path: str) -> OutputFile | None:
    """The entry of a path below `results/`; None for one that the page does not name."""
    if path.startswith("recorded/"):
        own = next((file for file in FILES if file.matches(path)), None)
        return own or named(path.replace("recorded/", "studies/", 1))
    return next((file for file in FILES if file.matches(path)), None)


_TABLES_HEAD = """\
## Tables

In brackets are type and unit; without brackets a column is text, with a unit only it is a double. A name with `|` is
two columns. An interval is null below two starts, pairs or logs. Columns that several tables have:

"""
_JSON_HEAD = """\
## JSON files

Units are in the names. `[]` is a list; the keys of its entries follow.
"""


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
