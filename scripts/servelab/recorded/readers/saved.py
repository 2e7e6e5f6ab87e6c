"""The shapes in which tools save figures: flat and nested objects of JSON, and tables of comma-separated values."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from servelab.recorded.readers.figures import statistic_of
from servelab.recorded.readers.pieces import Piece
from servelab.recorded.readers.results import Entry, Reader, ToolRun


def of_row(reader: Reader, name: str, values: Mapping[str, Any], line: int) -> Iterator[Entry]:
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
        if figure is not None and (value is not None or figure[1] != "value"):
            if isinstance(value, str):
                raise piece.error(f"`{key}` is not a number: {value!r}")
            entries.append(Entry(key, value, piece.first_line))
        elif figure is None and (_is_setting(reader, key, value) or (is_swept and key not in reader.ignored)):
            infinite = isinstance(value, float) and math.isinf(value)
            settings[reader.settings.get(key, key)] = "inf" if infinite else value
        elif figure is None:
            entries.append(_unknown(piece, key, value))
    if is_swept:
        settings["run_number"] = content[reader.facts["swept_by"]]
    yield ToolRun(entries, settings)


def _is_setting(reader: Reader, key: str, value: Any) -> bool:
    return key in reader.settings or value is None or isinstance(value, str | bool)


def _unknown(piece: Piece, key: str, value: Any) -> Entry:
    """An entry of a document that no reader may know, kept whole."""
    return Entry(key, value, piece.first_line, raw=f"{key}: {json.dumps(value, ensure_ascii=False)}")


def nested(reader: Reader, piece: Piece) -> Iterator[ToolRun]:
    """Objects of statistics at paths of a document, or of each object in a list of it."""
    whole = piece.document
    version = _at(whole, str(reader.facts.get("version_at")))
    is_text = isinstance(version, str) and len(version) < 100 and version.isprintable()
    each = reader.facts.get("each")
    roots = whole[each] if each else [whole]
    if not isinstance(roots, list) or not roots:
        raise piece.error(f"`{each}` holds none")
    for number, root in enumerate(roots):
        settings = {name: _first_at(root, paths) for name, paths in reader.facts.get("settings_at", {}).items()}
        settings = {"benchmark": number, **settings} if each else _with_point(root, settings)
        entries = [*_of_paths(reader, piece, root), *_others(reader, piece, root)]
        yield ToolRun(entries, settings, version if is_text else None, warnings=tuple(_incomplete(whole)))


_MOMENTS = ("mean", "std_dev", "min", "median", "max")


def _of_paths(reader: Reader, piece: Piece, root: Any) -> Iterator[Entry]:
    for path in reader.families:
        found = _at(root, path)
        if not isinstance(found, dict):
            continue
        name = f"{path} ({found['unit']})" if "unit" in found else path
        if reader.units:
            yield from of_row(reader, name.removesuffix(" ()"), found, piece.first_line)
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
    """What is at a path of a document; in a list, a part is the `name` of an object. None if nothing is."""
    for part in path.split(".") if path else ():
        if isinstance(root, list):
            root = next((each for each in root if isinstance(each, dict) and each.get("name") == part), None)
        else:
            root = root.get(part) if isinstance(root, dict) else None
    return root


def _first_at(root: Any, paths: str | list[str]) -> Any:
    found = (_at(root, path) for path in ([paths] if isinstance(paths, str) else paths))
    return next((value for value in found if value is not None), None)


def _with_point(root: Any, settings: dict[str, Any]) -> dict[str, Any]:
    """The settings of a run of AIPerf, which a point of a sweep overrides; only what is known."""
    names = {"concurrency": "max_concurrency", "request_rate": "request_rate_per_s", "rate": "request_rate_per_s"}
    point = _at(root, "run_info.variation_values")
    point = point if isinstance(point, dict) else {}
    last = {names.get(str(path).rpartition(".")[2], ""): value for path, value in point.items()}
    found = settings | {name: value for name, value in last.items() if name}
    return {name: value for name, value in found.items() if name == "command" or isinstance(value, int | float)}


def _incomplete(whole: Mapping[str, Any]) -> Iterator[str]:
    if whole.get("was_cancelled") or whole.get("is_complete") is False:
        yield f"the run did not complete: {whole.get('incomplete_reason') or 'cancelled'}"


def _percentile(key: str) -> str:
    """`p001` is the 0.1th, `p05` the 5th, `p999` the 99.9th percentile."""
    if not re.fullmatch(r"p\d{2,6}", key):
        raise ValueError(f"`{key}` is no percentile")
    whole = key[1:3].lstrip("0") or "0"
    return f"p{whole}.{key[3:]}" if key[3:] else f"p{whole}"


_PERCENTILES = ("min", "p0.1", "p1", "p5", "p10", "p25", "p75", "p90", "p95", "p99", "max")


def guidellm_csv(reader: Reader, piece: Piece) -> Iterator[ToolRun]:
    """A run for each row below one or three rows of heads."""
    height = 3 if piece.table[0].cells[0] == "Run Info" else 1
    heads = [
        ", ".join(filter(None, column)) for column in zip(*(row.cells for row in piece.table[:height]), strict=True)
    ]
    heads = [re.sub(r",? (mean|median|std dev|\[min, .*max\])$", _as_head, head, flags=re.I) for head in heads]
    for row in piece.table[height:]:
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
