"""From a piece to the runs in it: a function for each shape in which tools print or save their figures."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

from servelab.recorded.readers.figures import statistic_of
from servelab.recorded.readers.pieces import Entry, Piece, TableRow
from servelab.recorded.readers.results import Reader, ToolRun


def rows(reader: Reader, piece: Piece) -> Iterator[ToolRun]:
    """The run of a block of rows; in a frame, a row that is no figure is a setting, or explains the figures."""
    entries, settings = [], {}
    if (last := reader.facts.get("last", "")) and last not in piece.lines:
        raise piece.error(f"`{last}` is missing: the report is cut off")
    for row in piece.rows:
        if piece.form != "frame" or not row.value or reader.knows(row.name):
            entries.append(row)
        elif not row.name.startswith(("DATASET", "PERFORMANCE")):
            settings[row.name.rpartition(": ")[2]] = row.value
    versions = (settings.pop(name) for name in reader.facts.get("version_in", ()) if name in settings)
    yield ToolRun(entries, settings, next(versions, None))


def statistics(reader: Reader, piece: Piece) -> Iterator[ToolRun]:
    """Tables with a row for each metric; where they have a column `Stage`, a run for each stage.

    Of others that follow the first, only latencies are read.
    """
    runs: dict[str, list[Entry]] = {}
    for number, (head, found) in enumerate(_tables(piece)):
        for name, row in _joined(found):
            if len(row.cells) != len(head):
                text = f"{len(row.cells)} columns where the table's head has {len(head)}"
                raise piece.error(text, row.line)
            values = dict(zip(head[1:], row.cells[1:], strict=True))
            stage = values.pop("Stage", "")
            if stage or not number or piece.form == "csv" or name in reader.families:
                runs.setdefault(stage, []).extend(_of_row(reader, name, values, row.line))
    for stage, entries in runs.items():
        yield ToolRun([*entries, *piece.rows], {"stage": stage} if stage else {})


def _tables(piece: Piece) -> Iterator[tuple[Sequence[str], list[TableRow]]]:
    """The head and the rows of each table, also of those in one CSV file; a document is one with a column `Stage`."""
    stages = ((name, *each) for name, values in piece.document.items() for each in values.items())
    if piece.document:
        yield ("", "Stage", "Value"), [TableRow(piece.first_line, tuple(map(str, each))) for each in stages]
    for table in piece.tables:
        rows = [table.groups[0][0], *table.rows]
        starts = [number for number, row in enumerate(rows) if row.cells[0] in (rows[0].cells[0], "Metric", "Endpoint")]
        starts = starts if piece.form == "csv" else [0]
        for start, end in zip(starts, [*starts[1:], None], strict=True):
            yield rows[start].cells, rows[start + 1 : end]


def _joined(found: Iterable[TableRow]) -> list[tuple[str, TableRow]]:
    """Rows by name; a row with nothing but a first cell continues the name of the row above it."""
    named: list[tuple[str, TableRow]] = []
    for row in found:
        if row.cells[0].startswith("──"):
            continue
        above = named.pop() if named and len(row.cells) > 1 and not any(row.cells[1:]) else ("", row)
        named.append((f"{above[0]} {row.cells[0]}".strip(), above[1]))
    return named


_NOTED = re.compile(r"([\d.,]+)(?: ± [\d.,]+|\*)?")
"""A number, perhaps with half its confidence interval, or marked as without one."""
_PERCENTILES = ("min", "p0.1", "p1", "p5", "p10", "p25", "p75", "p90", "p95", "p99", "max")


def records(reader: Reader, piece: Piece) -> Iterator[ToolRun]:
    """A run for each row below rows of heads; each table continues the rows of the one before."""
    tables = [[row for group in table.groups for row in group] for table in piece.tables]
    height, is_saved = reader.facts["head_rows"], piece.form == "csv"
    if len(tables) <= len(reader.following):
        raise piece.error(f"only {len(tables)} of the tables with figures are there: the output is cut off")
    heads = [head for rows in tables for head in _heads(rows[:height], is_saved)]
    for number, found in enumerate(zip(*(rows[height:] for rows in tables), strict=True)):
        if len({row.cells[0] for row in found}) > 1:
            raise piece.error("its tables have other benchmarks")
        entries, settings = [], dict[str, Any](benchmark=number)
        cells = [(row.line, text) for row in found for text in row.cells]
        for head, (line, text) in zip(heads, cells, strict=True):
            family, _, statistic = head.rpartition(", ")
            noted = _NOTED.fullmatch(text)
            if head in reader.settings:
                settings[reader.settings[head]] = text
            elif head in reader.figures:
                entries.append(Entry(head, _saved(text) if is_saved else text or "N/A", line))
            elif family in reader.families and statistic == "Percentiles":
                values = zip(_PERCENTILES, text.strip("[]").split(", "), strict=True)
                entries += [Entry(family, _saved(each), line, statistic_of(name)) for name, each in values]
            elif family in reader.families and (is_saved or noted):
                value = noted[1] if noted and not is_saved else _saved(text)
                entries.append(Entry(family, value, line, statistic_of(statistic)))
        yield ToolRun(entries, settings, line=found[0].line if is_saved else None)


def _heads(rows: Sequence[TableRow], is_saved: bool) -> list[str]:
    """The joined heads of each column, as newer releases write them; in a log an empty one repeats the one before."""
    heads = [row.cells if is_saved else accumulate(row.cells, lambda above, cell: cell or above) for row in rows]
    joined = (", ".join(filter(None, column)) for column in zip(*heads, strict=True))
    named = (re.sub(r",? \[min, .*max\]$", ", Percentiles", head, flags=re.I) for head in joined)
    return [re.sub(r",? (mean|median|std dev)$", lambda of: f", {of[1].title()}", head, flags=re.I) for head in named]


def _saved(text: str) -> float | None:
    return None if text in ("", "None", "nan") else float(text)


_RATE = re.compile(r"(\d+\.\d\d) ± (\d+\.\d\d)")
_TEST = re.compile(r"(?:(pp) ?\d+)?\+?(?:(tg) ?\d+)?(?: @ d ?\d+)?")


def llama_bench(reader: Reader, piece: Piece) -> Iterator[ToolRun]:
    """A run for each test: a row of a table, or an object with its settings."""
    rows = [(row.line, dict(zip(table.header, row.cells, strict=True))) for table in piece.tables for row in table.rows]
    for line, values in rows if piece.tables else [(piece.first_line, piece.document)]:
        if piece.tables:
            printed, test = _RATE.fullmatch(values.pop("t/s")), _TEST.fullmatch(values["test"])
            if printed is None or test is None or not values["test"]:
                raise piece.error(f"`{values['test']}` has no test and rate of llama-bench", line)
            (mean, std), (prompt, generated) = printed.groups(), test.groups()
        else:
            mean, std, prompt, generated = (values[key] for key in ("avg_ts", "stddev_ts", "n_prompt", "n_gen"))
        of = "total" if prompt and generated else "prompt" if prompt else "generated"
        entries = [Entry(f"{of}_tokens_per_s", each, line, name) for name, each in (("mean", mean), ("std", std))]
        settings = {key: each for key, each in values.items() if not re.fullmatch(r"(avg|stddev|samples)_(ns|ts)", key)}
        yield ToolRun(entries, settings, line=line)


_NUMBER_WITH_UNIT = re.compile(r"[\d.,]+ +([a-z][\w/]*)")


def _of_row(reader: Reader, name: str, values: Mapping[str, Any], line: int) -> Iterator[Entry]:
    """Statistics of a metric; one with only an average is one number, and `a / b` are two names with two numbers."""
    raw = f"{name}: {', '.join(map(str, values.values()))}"
    units = {match[1] for each in values.values() if (match := _NUMBER_WITH_UNIT.fullmatch(str(each)))}
    if reader.units and len(units) == 1:
        unit = units.pop()
        name, values = f"{name} ({unit})", {head: each.removesuffix(unit).strip() for head, each in values.items()}
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
            settings[reader.settings.get(key, key)] = value
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
        known = {key: each for key, each in settings.items() if key == "command" or isinstance(each, int | float)}
        settings = {"benchmark": number, **settings} if each else known
        entries = [*_of_paths(reader, piece, root), *_others(reader, piece, root)]
        yield ToolRun(entries, settings, version if is_text else None, warnings=warnings)


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
        named = {statistic_of(key): None if empty else value for key, value in found.items()}
        yield from (Entry(path, value, piece.first_line, name) for name, value in named.items() if name)
        for key, value in ({} if empty else found.get("percentiles") or {}).items():
            if key != "p50":
                yield Entry(path, value, piece.first_line, _percentile(key))
    for path in () if reader.units else reader.figures:
        above, _, key = path.rpartition(".")
        parent = _at(root, above)
        if isinstance(parent, dict) and key in parent:
            is_empty = parent.get("count") == 0 and "mean" in parent
            yield Entry(path, None if is_empty else parent[key], piece.first_line)


def _others(reader: Reader, piece: Piece, root: Any) -> Iterator[Entry]:
    """Objects of statistics that no path leads to."""
    known = {part for path in (*reader.figures, *reader.families) for part in path.split(".")}
    metrics = root.get("metrics", root) if isinstance(root, dict) else {}
    for key, value in metrics.items() if isinstance(metrics, dict) else ():
        if key not in known and isinstance(value, dict) and ("unit" in value or "successful" in value):
            yield _unknown(piece, key, value.get("successful", value))


def _at(root: Any, path: str) -> Any:
    """The value at a path of a document, or None; a part is a key or its end, or in a list the `name` of an object."""
    for part in path.split(".") if path else ():
        if isinstance(root, list):
            root = next((each for each in root if isinstance(each, dict) and each.get("name") == part), None)
        else:
            named = root if isinstance(root, dict) else {}
            root = named.get(part, next((each for key, each in named.items() if key.endswith(f".{part}")), None))
    return root


def _percentile(key: str) -> str:
    """`p001` is the 0.1th, `p05` the 5th, `p999` the 99.9th percentile."""
    if not re.fullmatch(r"p\d{2,6}", key):
        raise ValueError(f"`{key}` is no percentile")
    whole = key[1:3].lstrip("0") or "0"
    return f"p{whole}.{key[3:]}" if key[3:] else f"p{whole}"
