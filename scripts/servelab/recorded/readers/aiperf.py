"""AIPerf's console, `profile_export_aiperf.json` and `.csv`, and the console of GenAI-Perf, from which it comes.

Source: `aiperf/exporters/metrics_csv_exporter.py`, `metrics_json_exporter.py` and `metrics/types/` of 0.13.0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from servelab.recorded.readers.consistency import REQUESTS, same_window
from servelab.recorded.readers.pieces import Piece
from servelab.recorded.readers.results import READERS, Entry, FigureForm, Reader, ToolRun, statistic_of, unknown_entry
from servelab.recorded.readers.tables import TableRow

_METRICS = (
    ("request_count", "Request Count", "requests_completed"),
    ("error_request_count", "Error Request Count", "requests_failed"),
    ("completed_request_count", "Completed Requests (Success + Error)", "requests"),
    ("benchmark_duration", "Benchmark Duration", "duration_s"),
    ("total_isl", "Total Input Sequence Length", "input_tokens"),
    ("total_osl", "Total Output Sequence Length", "output_tokens"),
    ("request_throughput", "Request Throughput", "requests_per_s"),
    ("goodput", "Goodput", "goodput_per_s"),
    ("input_token_throughput", "Input Token Throughput", "input_tokens_per_s"),
    ("output_token_throughput", "Output Token Throughput", "output_tokens_per_s"),
    ("total_token_throughput", "Total Token Throughput", "total_tokens_per_s"),
    ("effective_concurrency", "Effective Concurrency", "concurrency"),
    ("request_latency", "Request Latency", "e2el_ms"),
    ("time_to_first_token", "Time to First Token", "ttft_ms"),
    ("inter_token_latency", "Inter Token Latency", "tpot_ms"),
    ("inter_chunk_latency", "Inter Chunk Latency", "itl_ms"),
)
"""Tag in the JSON, name in tables, metric."""
_GENAI_PERF = (
    ("Time To First Token", "ttft_ms"),
    ("Request Latency", "e2el_ms"),
    ("Inter Token Latency", "tpot_ms"),
    ("Output Token Throughput", "output_tokens_per_s"),
    ("Request Throughput", "requests_per_s"),
    ("Request Goodput", "goodput_per_s"),
    ("Request Count", "requests_completed"),
)
_FACTORS: Mapping[str, Mapping[str, float]] = {
    "_ms": {"ns": 1e-6, "us": 1e-3, "ms": 1, "sec": 1000},
    "_per_s": {"requests/sec": 1, "tokens/sec": 1, "per sec": 1},
    "_s": {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "sec": 1},
    "": {"requests": 1, "tokens": 1, "count": 1, "": 1},
}
"""End of the metric's name → unit in the tool → factor."""
_RULES = (
    REQUESTS,
    same_window("input_tokens_per_s", "input_tokens"),
    same_window("output_tokens_per_s", "output_tokens"),
    same_window("total_tokens_per_s", "input_tokens", "output_tokens"),
)
_DEFINITIONS = {
    "tpot_ms": "AIPerf's inter_token_latency: (E2EL − TTFT) / (output tokens − tokens of the first event)",
    "duration_s": "from the first request to the last response",
    **dict.fromkeys(
        ("requests_per_s", "goodput_per_s", "input_tokens_per_s", "output_tokens_per_s", "total_tokens_per_s"),
        "over the profiling phase, which is a little longer than duration_s",
    ),
}


def _named(names: Iterable[tuple[str, str]], decimals: int | None = 2) -> dict[str, FigureForm]:
    """Each name with each of its units; `decimals` are those of a count."""
    found = {}
    for name, metric in names:
        units = next(units for ending, units in _FACTORS.items() if metric.endswith(ending))
        digits = 2 if metric.endswith("_s") or metric.endswith("_ms") else decimals
        for unit, factor in units.items():
            found[f"{name} ({unit})" if unit else name] = FigureForm(metric, digits, factor)
    return found


def _entries(reader: Reader, name: str, values: Mapping[str, Any], line: int, raw: str = "") -> Iterator[Entry]:
    """Statistics of a metric; one with only an average is one number."""
    others = [value for key, value in values.items() if key not in ("avg", "Value", "unit")]
    if name not in reader.figures or all(value in ("", "N/A") for value in others):
        yield Entry(name, values.get("avg", values.get("Value")), line, raw=f"{name}: {raw}")
        return
    for key, value in values.items():
        if (statistic := statistic_of(key)) and value != "":
            yield Entry(name, value, line, statistic)


def _json_runs(reader: Reader, piece: Piece) -> Iterator[ToolRun]:
    """The run of the profiling phase."""
    document, warnings = piece.document, []
    entries: list[Entry] = []
    for key, values in document.items():
        name = f"{key} ({values.get('unit')})" if isinstance(values, dict) else key
        if name in reader.figures or name.removesuffix(" ()") in reader.figures:
            entries += _entries(reader, name.removesuffix(" ()"), values, piece.first_line)
        elif isinstance(values, dict) and "unit" in values:
            entries.append(unknown_entry(piece, key, values))
    if document.get("was_cancelled") or document.get("is_complete") is False:
        warnings.append(f"the run did not complete: {document.get('incomplete_reason') or 'cancelled'}")
    version = document["aiperf_version"]
    is_text = isinstance(version, str) and len(version) < 100 and version.isprintable()
    settings = {"command": _part(document, "run_info").get("cli_command"), **_load(document)}
    yield ToolRun(entries, settings, version if is_text else None, warnings=tuple(warnings))


def _load(document: Mapping[str, Any]) -> dict[str, float]:
    """The load of a run: its point of a sweep, or else what its configuration has of the phase that counts.

    Up to 0.2 a configuration had `loadgen`, since then `phases`.
    """
    config, point = _part(document, "input_config"), _part(_part(document, "run_info"), "variation_values")
    phases = config.get("phases")
    counted = [each for each in phases if isinstance(each, dict)] if isinstance(phases, list) else []
    given = {
        **_part(config, "loadgen"),
        **next((each for each in counted if each.get("name") == "profiling"), {}),
        **{str(path).rpartition(".")[2]: value for path, value in point.items()},
    }
    names = {"concurrency": "max_concurrency", "request_rate": "request_rate_per_s", "rate": "request_rate_per_s"}
    return {ours: given[its] for its, ours in names.items() if isinstance(given.get(its), int | float)}


def _part(content: Mapping[str, Any], key: str) -> dict[str, Any]:
    """An object in a document; empty if there is none."""
    found = content.get(key)
    return found if isinstance(found, dict) else {}


def _csv_runs(reader: Reader, piece: Piece) -> Iterator[ToolRun]:
    """The run of a table of distributions, one of single values, and perhaps one of accelerators."""
    header: list[str] = []
    entries: list[Entry] = []
    for line, row in enumerate(piece.table, start=1):
        if row and row[0] in ("Metric", "Endpoint"):
            header = row
        elif row and len(row) != len(header):
            raise piece.error(f"{len(row)} columns where the table has {len(header)}: the row is cut off", line)
        elif row:
            values = dict(zip(header[1:], row[1:], strict=True))
            entries += _entries(reader, row[0], values, line, ",".join(row[1:]))
    yield ToolRun(entries)


def _console_runs(reader: Reader, piece: Piece) -> Iterator[ToolRun]:
    """The run of a table; a row with nothing but a first cell continues the name of the row above it."""
    named: list[tuple[str, TableRow]] = []
    for row in piece.tables[0].rows:
        above = named.pop() if named and not any(row.cells[1:]) else ("", row)
        named.append((f"{above[0]} {row.cells[0]}".strip(), above[1]))
    header = piece.tables[0].header
    entries: list[Entry] = []
    for name, row in named:
        values = dict(zip(header[1:], row.cells[1:], strict=True))
        entries += _entries(reader, name, values, row.line, ", ".join(row.cells[1:]))
    yield ToolRun(entries)


def _register(name: str, figures: Mapping[str, FigureForm], **facts: Any) -> None:
    facts = {"tool": "aiperf", "rules": _RULES, "definitions": _DEFINITIONS, **facts}
    READERS.register(name, Reader(figures=figures, families=figures, **facts))


_SAVED = ("requests_completed", "duration_s", "requests_per_s")

_register(
    "AIPerf, JSON",
    _named((tag, metric) for tag, _, metric in _METRICS),
    form="json",
    markers=frozenset({"aiperf_version", "request_count"}),
    required=_SAVED,
    runs=_json_runs,
)
_register(
    "AIPerf, CSV",
    _named(((name, metric) for _, name, metric in _METRICS), None),
    form="csv",
    markers=frozenset({"Metric", "Request Count"}),
    required=_SAVED,
    runs=_csv_runs,
)
_register(
    "AIPerf, console",
    _named((name, metric) for _, name, metric in _METRICS),
    form="grid",
    markers=frozenset({"Metric", "avg", "min", "max", "Request Count (requests)"}),
    required=("requests_completed", "requests_per_s", "e2el_ms"),
    runs=_console_runs,
)
_register(
    "GenAI-Perf, console",
    _named(_GENAI_PERF),
    tool="genai-perf",
    form="grid",
    markers=frozenset({"Statistic", "avg", "min", "max", "p99"}),
    required=("requests_per_s", "e2el_ms"),
    definitions={
        "tpot_ms": "GenAI-Perf's inter_token_latency: (E2EL − TTFT) / (output tokens − 1)",
        "output_tokens_per_s": "over the time from the first request to the last response",
    },
    runs=_console_runs,
)
