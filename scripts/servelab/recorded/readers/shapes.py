"""From a piece to the runs in it: a function for each shape in which tools print or save their figures."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from servelab.recorded.readers.figures import statistic_of
from servelab.recorded.readers.pieces import Piece, Table, TableRow
from servelab.recorded.readers.results import Entry, Reader, ToolRun


def rows(reader: Reader, piece: Piece) -> Iterator[ToolRun]:
    """The run of a console block."""
    yield ToolRun([Entry(row.label, row.text, row.line, raw=row.raw) for row in piece.rows])


def columns(reader: Reader, piece: Piece) -> Iterator[ToolRun]:
    """Rows of one number, then, below a row that names statistics, rows of several."""
    heads: list[str | None] = []
    entries: list[Entry] = []
    settings = {}
    for line, name, text, raw in piece.rows:
        values = text.split()
        if re.fullmatch(r"mean(?: +P\d+(?:\.\d+)?)+", raw):
            heads = [statistic_of(head) for head in raw.split()]
        elif name in reader.families:
            pairs = zip(heads, values, strict=True)
            entries += [Entry(name, "N/A" if each == "inf" else each, line, head) for head, each in pairs]
        elif name in reader.figures or not text or heads:
            entries += [Entry(name, text, line, raw=raw)] if not re.fullmatch(r"-{20,}", raw) else []
        else:
            settings[name] = text
    yield ToolRun(entries, settings)


_VALUES = re.compile(r"(?P<name>.+?)(?:\(s\))? ?(?:percentile)?\((?P<heads>[\w, ]+)\)")


def values_in_parentheses(reader: Reader, piece: Piece) -> Iterator[ToolRun]:
    """Rows `name: number unit`, or `name(min, max, ave): number, number, number`."""
    entries = []
    for line, name, text, raw in piece.rows:
        match = _VALUES.fullmatch(name)
        if match and match["name"] in reader.families:
            heads = [statistic_of(head) or f"p{head}" for head in match["heads"].split(", ")]
            numbers = text.strip("[]").replace("s", "").split(", ")
            entries += [Entry(match["name"], *pair) for pair in zip(numbers, [line] * len(heads), heads, strict=True)]
        else:
            number = re.fullmatch(r"([\d.]+)(?: ?(?:s|token/s|req/s|req/min))?", text)
            entries.append(Entry(name, number[1] if number else text, line, raw=raw))
    yield ToolRun(entries)


_STATISTIC = re.compile(r"PERFORMANCE OVERVIEW: (\[(?:Latency|TTFT|TPOT)\]) (P\d\d|MINIMUM|MAXIMUM|AVERAGE)")


def sections(reader: Reader, piece: Piece) -> Iterator[ToolRun]:
    """The run of the sections of requests and of performance; lines of the other sections are settings."""
    entries, settings, version = [], {}, None
    if "= DATASET DETAILS" not in piece.lines:
        raise piece.error("the section DATASET DETAILS is missing: the report is cut off")
    for line, label, text, _ in piece.rows:
        match = _STATISTIC.fullmatch(label)
        if match or label in reader.figures:
            name, statistic = (match[1], statistic_of(match[2])) if match else (label, None)
            entries.append(Entry(name, text, line, statistic))
        elif re.fullmatch(r".*: TensorRT[ -]LLM Version", label):
            version = text
        elif not label.startswith(("DATASET", "PERFORMANCE", "= ")):
            settings[label.partition(": ")[2]] = text
    yield ToolRun(entries, settings, version)


def statistics(reader: Reader, piece: Piece) -> Iterator[ToolRun]:
    """Tables with a row for each metric; a row with nothing but a first cell continues the name of the row above it.

    Of tables that follow the first, only latencies are read.
    """
    entries: list[Entry] = []
    for number, (head, found) in enumerate(_tables(piece)):
        for name, row in _joined(found):
            if len(row.cells) != len(head):
                text = f"{len(row.cells)} columns where the table's head has {len(head)}"
                raise piece.error(text, row.line)
            values = dict(zip(head[1:], row.cells[1:], strict=True))
            if piece.form == "csv" or not number or name in reader.families:
                entries += _of_row(reader, name, values, row.line)
    entries += [Entry(row.label, row.text, row.line, raw=row.raw) for row in piece.rows]
    yield ToolRun(entries)


def _tables(piece: Piece) -> Iterator[tuple[Sequence[str], list[TableRow]]]:
    """The head and the rows of each table; in a CSV file a row `Metric, …` begins another."""
    for table in piece.tables:
        rows = [table.groups[0][0], *table.rows]
        starts = [number for number, row in enumerate(rows) if row.cells[0] in ("Metric", "Endpoint")]
        starts = starts if piece.form == "csv" else [0]
        for start, end in zip(starts, [*starts[1:], None], strict=True):
            yield rows[start].cells, rows[start + 1 : end]


def _joined(found: Iterable[TableRow]) -> list[tuple[str, TableRow]]:
    named: list[tuple[str, TableRow]] = []
    for row in found:
        if row.cells[0].startswith("──"):
            continue
        above = named.pop() if named and len(row.cells) > 1 and not any(row.cells[1:]) else ("", row)
        named.append((f"{above[0]} {row.cells[0]}".strip(), above[1]))
    return named


_NOTED = re.compile(r"([\d.,]+)(?: ± [\d.,]+|\*)?")
"""A number, perhaps with half its confidence interval, or marked as without one."""


def guidellm_console(reader: Reader, piece: Piece) -> Iterator[ToolRun]:
    """A run for each row of the tables of runs, latencies and throughputs."""
    if len(piece.tables) != 3:
        raise piece.error(f"{len(piece.tables)} of the three tables with figures are there: the output is cut off")
    heads = [_heads(table) for table in piece.tables]
    for number, found in enumerate(zip(*(table.rows for table in piece.tables), strict=True)):
        if len({row.cells[0] for row in found}) > 1:
            raise piece.error("its tables have other benchmarks")
        entries = []
        for names, row in zip(heads, found, strict=True):
            for name, text in zip(names, row.cells, strict=True):
                family, _, statistic = name.rpartition(", ")
                if name in reader.figures:
                    entries.append(Entry(name, text or "N/A", row.line))
                elif family in reader.families and (noted := _NOTED.fullmatch(text)):
                    entries.append(Entry(family, noted[1], row.line, statistic_of(statistic)))
        yield ToolRun(entries, {"benchmark": number, "strategy": found[0].cells[0]})


def _heads(table: Table) -> list[str]:
    """The three heads of each column; an empty one is that of the column before, as the tool joins equal ones."""
    heads = [list(row.cells) for row in table.groups[0]]
    for row in heads:
        for column in range(1, len(row)):
            row[column] = row[column] or row[column - 1]
    return [", ".join(column) for column in zip(*heads, strict=True)]


def aisbench(reader: Reader, piece: Piece) -> Iterator[ToolRun]:
    """A run for each stage, `total` or `stable`: rows of latencies and rows of totals, each value with its unit."""
    head = piece.tables[0].header if piece.tables else ()
    found = [row for table in piece.tables for row in table.rows]
    for name, stages in piece.document.items():
        found += [TableRow(piece.first_line, (name, stage, str(value))) for stage, value in stages.items()]
    for stage in dict.fromkeys(row.cells[1] for row in found):
        entries = []
        for row in (each for each in found if each.cells[1] == stage):
            name, _, *cells = row.cells
            if name in reader.families:
                pairs = zip(head[2:], cells, strict=True)
                entries += [_with_unit(reader, piece, row, *pair) for pair in pairs if statistic_of(pair[0])]
            elif len(cells) == 1:
                entries.append(_with_unit(reader, piece, row, None, cells[0]))
            else:
                entries.append(Entry(name, "", row.line, raw=f"{name}: {', '.join(cells)}"))
        yield ToolRun(entries, {"stage": stage})


def _with_unit(reader: Reader, piece: Piece, row: TableRow, head: str | None, text: str) -> Entry:
    """A value without its unit, which must be that of its row."""
    name, (number, _, unit) = row.cells[0], text.partition(" ")
    wanted = reader.facts["cell_units"].get(name, "" if reader.knows(name) else unit)
    if unit.strip() != wanted and text != "0":
        raise piece.error(f"`{name}` is `{text}`, not a number in {wanted or 'no unit'}", row.line)
    form = reader.figures.get(name)
    whole, _, decimals = number.partition(".")
    value = whole if form and form.decimals == 0 and decimals in ("0", "00") else number
    value = "N/A" if value in ("", "-") else value
    return Entry(name, value, row.line, head and statistic_of(head), f"{name}: {text}")


_RATE = re.compile(r"(?P<mean>\d+\.\d\d) ± (?P<std>\d+\.\d\d)")
_TEST = re.compile(r"(?:(?P<prompt>pp) ?\d+)?\+?(?:(?P<generated>tg) ?\d+)?(?: @ d ?\d+)?")


def llama_bench(reader: Reader, piece: Piece) -> Iterator[ToolRun]:
    """A run for each test: a row of a table, or an object with its settings."""
    if content := piece.document:
        settings = {
            key: value for key, value in content.items() if not re.fullmatch(r"(avg|stddev|samples)_(ns|ts)", key)
        }
        rate = {"mean": content["avg_ts"], "std": content["stddev_ts"]}
        yield _test(piece.first_line, content["n_prompt"], content["n_gen"], rate, settings)
    for row in piece.tables[0].rows if piece.tables else ():
        values = dict(zip(piece.tables[0].header, row.cells, strict=True))
        test, text = values["test"], values.pop("t/s")
        printed, match = _RATE.fullmatch(text), _TEST.fullmatch(test)
        if printed is None or match is None or not test:
            raise piece.error(f"`{test}: {text}` is no test and rate of llama-bench", row.line)
        yield _test(row.line, match["prompt"], match["generated"], printed.groupdict(), values)


def _test(line: int, prompt: Any, generated: Any, rate: Mapping[str, Any], settings: Mapping[str, Any]) -> ToolRun:
    name = "total_tokens_per_s" if prompt and generated else f"{'prompt' if prompt else 'generated'}_tokens_per_s"
    entries = [Entry(name, number, line, statistic) for statistic, number in rate.items()]
    return ToolRun(entries, settings, line=line)


def _of_row(reader: Reader, name: str, values: Mapping[str, Any], line: int) -> Iterator[Entry]:
    """Statistics of a metric; one with only an average is one number, and `a / b` are two names with two numbers."""
    raw = f"{name}: {', '.join(map(str, values.values()))}"
    others = [value for head, value in values.items() if head not in ("avg", "Value", "Average", "unit")]
    if reader.find(name, "mean") is None or all(value in ("", "N/A") for value in others):
        value = next((values[head] for head in ("avg", "Value", "Average") if head in values), None)
        value = next(iter(values.values()), None) if value is None else value
        names, parts = name.split(" / "), str(value).split(" / ")
        if len(names) == len(parts) > 1 and all(each in reader.figures for each in names):
            yield from (Entry(each, part, line) for each, part in zip(names, parts, strict=True))
        else:
            yield Entry(name, "N/A" if value == "" else value, line, raw=raw)
        return
    for head, value in values.items():
        if (statistic := statistic_of(head)) and value != "":
            yield Entry(name, value, line, statistic)


def document(reader: Reader, piece: Piece) -> Iterator[ToolRun]:
    """The run of a JSON object whose keys are figures, settings, and lists with one entry per request.

    In a sweep, and around the object in one key of another, numbers that are no figure name the run.
    """
    inside, settings = reader.facts.get("within"), {}
    content = piece.document
    if inside and isinstance(content.get(inside), dict):
        settings = {reader.settings.get(key, key): value for key, value in content.items() if key != inside}
        content = content[inside]
    is_swept = reader.facts.get("swept_by") in content
    entries = []
    for key, value in content.items():
        figure = reader.find(key)
        is_named = key in reader.settings or value is None or isinstance(value, str | bool)
        if figure is not None and (value is not None or figure[1] != "value"):
            if isinstance(value, str):
                raise piece.error(f"`{key}` is not a number: {value!r}")
            entries.append(Entry(key, value, piece.first_line))
        elif figure is None and (is_named or (is_swept and key not in reader.ignored)):
            infinite = isinstance(value, float) and math.isinf(value)
            settings[reader.settings.get(key, key)] = "inf" if infinite else value
        elif figure is None:
            entries.append(_unknown(piece, key, value))
    if is_swept:
        settings["run_number"] = content[reader.facts["swept_by"]]
    yield ToolRun(entries, settings)


def _unknown(piece: Piece, key: str, value: Any) -> Entry:
    """An entry of a document that no reader may know, kept whole."""
    return Entry(key, value, piece.first_line, raw=f"{key}: {json.dumps(value, ensure_ascii=False)}")


def nested(reader: Reader, piece: Piece) -> Iterator[ToolRun]:
    """Objects of statistics at paths of a document, or of each object in a list of it."""
    whole = piece.document
    version = _at(whole, str(reader.facts.get("version_at")))
    is_text = isinstance(version, str) and len(version) < 100 and version.isprintable()
    is_whole = not whole.get("was_cancelled") and whole.get("is_complete") is not False
    warnings = () if is_whole else (f"the run did not complete: {whole.get('incomplete_reason') or 'cancelled'}",)
    each = reader.facts.get("each")
    roots = whole[each] if each else [whole]
    if not isinstance(roots, list) or not roots:
        raise piece.error(f"`{each}` holds none")
    for number, root in enumerate(roots):
        settings = {}
        for name, paths in reader.facts.get("settings_at", {}).items():
            found = (_at(root, path) for path in ([paths] if isinstance(paths, str) else paths))
            settings[name] = next((value for value in found if value is not None), None)
        settings = {"benchmark": number, **settings} if each else _with_point(root, settings)
        entries = [*_of_paths(reader, piece, root), *_others(reader, piece, root)]
        yield ToolRun(entries, settings, version if is_text else None, warnings=warnings)


_MOMENTS = ("mean", "std_dev", "min", "median", "max")


def _of_paths(reader: Reader, piece: Piece, root: Any) -> Iterator[Entry]:
    for path in reader.families:
        found = _at(root, path)
        if not isinstance(found, dict):
            continue
        name = f"{path} ({found['unit']})" if "unit" in found else path
        if reader.units:
            yield from _of_row(reader, name.removesuffix(" ()"), found, piece.first_line)
            continue
        empty = found.get("count") == 0
        named = {statistic_of(key): key for key in _MOMENTS if empty} or {statistic_of(key): key for key in found}
        yield from (Entry(path, found.get(key), piece.first_line, name) for name, key in named.items() if name)
        for key, value in ({} if empty else found.get("percentiles") or {}).items():
            if key != "p50":
                yield Entry(path, value, piece.first_line, _percentile(key))
    for path in reader.figures if not reader.units else ():
        parent = _at(root, path.rpartition(".")[0])
        if isinstance(parent, dict) and path.rpartition(".")[2] in parent:
            value = parent[path.rpartition(".")[2]]
            value = None if parent.get("count") == 0 and "mean" in parent else value
            yield Entry(path, value, piece.first_line)


def _others(reader: Reader, piece: Piece, root: Any) -> Iterator[Entry]:
    """Objects of statistics that no path leads to."""
    known = {part for path in (*reader.figures, *reader.families) for part in path.split(".")}
    metrics = root.get("metrics", root) if isinstance(root, dict) else {}
    for key, value in metrics.items() if isinstance(metrics, dict) else ():
        if key not in known and isinstance(value, dict) and ("unit" in value or "successful" in value):
            yield _unknown(piece, key, value.get("successful", value))


def _at(root: Any, path: str) -> Any:
    """The value at a path of a document, or None; in a list, a part is the `name` of an object."""
    for part in path.split(".") if path else ():
        if isinstance(root, list):
            root = next((each for each in root if isinstance(each, dict) and each.get("name") == part), None)
        else:
            root = root.get(part) if isinstance(root, dict) else None
    return root


def _with_point(root: Any, settings: dict[str, Any]) -> dict[str, Any]:
    """The settings of a run of AIPerf, which a point of a sweep overrides; only what is known."""
    names = {"concurrency": "max_concurrency", "request_rate": "request_rate_per_s", "rate": "request_rate_per_s"}
    point = _at(root, "run_info.variation_values")
    point = point if isinstance(point, dict) else {}
    last = {names.get(str(path).rpartition(".")[2], ""): value for path, value in point.items()}
    found = settings | {name: value for name, value in last.items() if name}
    return {name: value for name, value in found.items() if name == "command" or isinstance(value, int | float)}


def _percentile(key: str) -> str:
    """`p001` is the 0.1th, `p05` the 5th, `p999` the 99.9th percentile."""
    if not re.fullmatch(r"p\d{2,6}", key):
        raise ValueError(f"`{key}` is no percentile")
    whole = key[1:3].lstrip("0") or "0"
    return f"p{whole}.{key[3:]}" if key[3:] else f"p{whole}"


_PERCENTILES = ("min", "p0.1", "p1", "p5", "p10", "p25", "p75", "p90", "p95", "p99", "max")


def guidellm_csv(reader: Reader, piece: Piece) -> Iterator[ToolRun]:
    """A run for each row below one or three rows of heads."""
    (table,) = piece.tables
    rows = [row for group in table.groups for row in group]
    height = 3 if table.header[0] == "Run Info" else 1
    heads = [", ".join(filter(None, column)) for column in zip(*(row.cells for row in rows[:height]), strict=True)]
    heads = [re.sub(r",? (mean|median|std dev|\[min, .*max\])$", _as_head, head, flags=re.I) for head in heads]
    for row in rows[height:]:
        entries, settings = [], {}
        for head, text in zip(heads, row.cells, strict=True):
            family, _, statistic = head.rpartition(", ")
            if head in reader.settings:
                settings[reader.settings[head]] = text
            elif head in reader.figures:
                entries.append(Entry(head, _as_number(text), row.line))
            elif family in reader.families and statistic == "Percentiles":
                values = zip(_PERCENTILES, text.strip("[]").split(", "), strict=True)
                entries += [Entry(family, _as_number(each), row.line, statistic_of(name)) for name, each in values]
            elif family in reader.families:
                entries.append(Entry(family, _as_number(text), row.line, statistic_of(statistic)))
        yield ToolRun(entries, settings, line=row.line)


def _as_head(match: re.Match[str]) -> str:
    """The name of a statistic as releases since 0.4 write it."""
    return ", Percentiles" if match[1][0] == "[" else f", {match[1].title()}"


def _as_number(text: str) -> float | None:
    return None if text in ("", "None", "nan") else float(text)
