"""Finds tables in a log, of `|`, of box characters, of Markdown, of commas, and JSON objects."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from itertools import chain
from typing import Any

from servelab.recorded.readers.pieces import (
    MOST_CHARACTERS,
    MOST_JSON_BYTES,
    MOST_PREFIX,
    Entry,
    Found,
    Line,
    Piece,
    Prefix,
    TableRow,
    TextTable,
    Window,
)

_LINE, _LEFT = "─━═┄┈╌┬┳╤┼╇╪┴┻╧╦╬╩╥╨╫┯┷┿╋", "┏┡├└╒╞╘┌╟╠╚╔╭╰┣┗╓╙"
_RIGHT = "┓┩┤┘╕╡╛┐╢╣╝╗╮╯┫┛╖╜"
_RULE = re.compile(rf"[{_RIGHT}][{_LINE}]*+[{_LEFT}]|\+(?:[-=]+\+)++[-=]*|\|(?: *[-=:]+ *\|)++")
"""A line between rows, read from its end: so each character is looked at once."""
_BOTTOM = frozenset("└╘╚╰┗╙")
_BEGINS = re.compile("[|+┏╒┌╔╭┣]")
_BELOW = re.compile(r"([A-Z][\w ]+ \([\w/ ]+\)): ([\d.,]+)")
"""A figure in a line below a table."""
_BARS = "|│┃║"
_CELL = re.compile(f"[{_BARS}]")
_MOST_FOREIGN = 50
"""Lines of others between the rows of a table."""
Names = Collection[frozenset[str]]
"""Sets of names, each of those by which a reader knows its results."""


def drawn(lines: Window, begin: int, line: Line, above: Line, below: Names) -> Found:
    """A drawn table; `below` are the names of tools that print lines `name: number` below one.

    A rule that only ends tables ends it, else any rule, or in Markdown any other line.
    """
    start = _rule(line[1]) if _BEGINS.search(line[1]) else None
    if start is None:
        return None
    prefix, groups = Prefix(line[1][:start]), list[list[TableRow]]()
    first, last, foreign, is_after_rule, why = line[0], line[0], 0, True, None
    is_box, is_markdown = line[1][start] in _LEFT, False
    header = prefix.rest(above[1])
    if line[1][start] == "|" and _is_row(header) and line[1][start:].count("|") == header.count("|"):
        is_markdown, first, groups = True, above[0], [[_row(above[0], header)]]
    at = begin
    for at, number, text in lines.near(begin):
        content = prefix.rest(text)
        if is_markdown and number > last + 1:  # an empty line
            break
        if _rule(content) == 0:
            is_after_rule, last = True, number
            if content[0] in _BOTTOM:
                is_box, at = False, at + 1
                break
        elif _is_row(content):
            groups += [[]] if is_after_rule else []
            groups[-1].append(_row(number, content))
            is_after_rule, last = False, number
        elif is_markdown or (not is_box and is_after_rule and groups):
            break
        elif (foreign := foreign + bool(content)) > _MOST_FOREIGN:
            why, at = "its last line does not follow", at + 1
            break
    else:
        at += 1
        why = "it has more than 2,000 rows or 1 MiB" if lines.get(at) else None
    if not groups:
        return [], at
    if not why and (is_box or not (is_markdown or is_after_rule)):
        why = "its last line is missing"
    if not why and len({len(row.cells) for group in groups for row in group}) > 1:
        why = "its rows have different numbers of columns"
    table = TextTable(groups)
    names = {row.cells[0]: row.line for row in reversed(table.rows)}
    names |= {cell: row.line for row in reversed(groups[0]) for cell in row.cells}
    rows = list(_figures(lines, at)) if any(each <= names.keys() for each in below) else []
    last = rows[-1].line if rows else last
    broken = f"the table is cut off or broken: {why}" if why else None
    return [Piece("grid", first, last, names, rows, tables=[table], broken=broken)], at + len(rows)


def _figures(lines: Window, at: int) -> Iterator[Entry]:
    """Those in lines from a position on."""
    while (line := lines.get(at)) and (match := _BELOW.fullmatch(line[1].strip())):
        yield Entry(match[1], match[2], line[0], raw=match[0])
        at += 1


def _row(number: int, content: str) -> TableRow:
    return TableRow(number, tuple(cell.strip() for cell in _CELL.split(content[1:-1])))


def _rule(line: str) -> int | None:
    """The start of a line between rows in a line; None if there is none."""
    text = line.rstrip()
    match = _RULE.match(text[::-1]) if text.endswith(("+", "|", *_RIGHT)) else None
    start = len(text) - match.end() if match else MOST_PREFIX + 1
    return start if start <= MOST_PREFIX else None


def _is_row(content: str) -> bool:
    return len(content) > 2 and content[0] in _BARS and content[-1] in _BARS


def gathered(pieces: Iterable[Piece], orders: Collection[tuple[frozenset[str], ...]]) -> Iterator[Piece]:
    """Pieces of a text, where the tables of one result are one piece.

    `orders` gives for each reader the names in its first table, and those in the others that may follow. A result that
    is printed twice in a row counts once.
    """
    joined: list[Piece] = []
    awaited: list[frozenset[str]] = []
    for piece in pieces:
        follows = next((names for names in awaited if piece.form == "grid" and names <= piece.lines.keys()), None)
        if follows is None:
            joined.append(piece)
            of = (rest for first, *rest in orders if piece.form == "grid" and first <= piece.lines.keys())
            awaited = [*next(of, [])]
            continue
        awaited.remove(follows)
        held, names, broken = joined[-1], {**piece.lines, **joined[-1].lines}, joined[-1].broken or piece.broken
        tables = [*held.tables, *piece.tables]
        joined[-1] = replace(held, last_line=piece.last_line, lines=names, tables=tables, broken=broken)
    cells = [[row.cells for table in piece.tables for group in table.groups for row in group] for piece in joined]
    for number, piece in enumerate(joined):
        if not (number and piece.form == joined[number - 1].form == "grid" and cells[number] == cells[number - 1]):
            yield piece


DECODE = json.JSONDecoder().raw_decode
_START = re.compile(r'\{\s*(?:"|$)')
_STRING = re.compile(r'"((?:[^"\\]|\\.)*+)("?)')
"""A text, and what ends it. One without an end is matched too, so that no character is looked at twice."""
_CONTINUES = re.compile(r'\s*(?:["\]}{]|\[(?!\d+\] )|-?\d|true|false|null|NaN|-?Infinity)')
_MOST_WITHIN = 3
"""Lines of a log within an object."""


def embedded_json(lines: Window, begin: int, line: Line, above: Line) -> Found:
    """A JSON object; one that ends too early is broken, and has the names of the keys in its text."""
    start = _START.search(line[1]) if "{" in line[1] else None
    if start is None or start.start() > MOST_PREFIX:
        return None
    prefix = Prefix(line[1][: start.start()])
    parts: list[str] = []
    depth = length = foreign = 0
    why = "it does not end"
    content = line[1][start.start() :]
    if "}" in content:
        try:
            return [of_object(line[0], line[0], DECODE(content)[0])], begin + 1
        except (RecursionError, ValueError):
            pass
    for at, number, text in chain([(begin, line[0], content)], lines.after(begin)):
        content = prefix.rest(text) if parts else text
        if not content:
            continue
        if parts and not (_CONTINUES.match(content) and (len(parts) > 1 or content[0] in '"}')):
            foreign += 1
            if foreign <= _MOST_WITHIN and not _START.search(text):
                continue
            why = "other lines are in it"
            break
        parts.append(content)
        length += len(content)
        bare = _STRING.sub(lambda text: '""' if text[2] else text[0], content)
        depth += sum(map(bare.count, "{[")) - sum(map(bare.count, "}]"))
        if depth > 0 and length <= MOST_JSON_BYTES:
            continue
        at += 1
        try:
            return [of_object(line[0], number, DECODE("\n".join(parts))[0])], at
        except (RecursionError, ValueError) as error:
            why = "nested too deeply" if isinstance(error, RecursionError) else str(error)
            break
    else:
        at += 1
    keys = {text for part in parts for text, end in _STRING.findall(part) if end}
    names, last = dict.fromkeys(keys, line[0]), line[0] + len(parts) - 1
    return [Piece("json", line[0], last, names, broken=f"JSON is cut off or broken: {why}")], at


def of_object(first: int, last: int, document: dict[str, Any]) -> Piece:
    """The piece of a JSON object."""
    return Piece("json", first, last, dict.fromkeys(document, first), document=document)


def comma_separated(lines: Window, begin: int, line: Line, above: Line, heads: Names, keys: Names) -> Found:
    """A table of comma-separated values, known by the names in its first row.

    `heads` are of tables, which only a fence ends. Where the names are the `keys` of a saved object, each row is one;
    any other line ends them.
    """
    if line[1].count(",") < 2 or len(line[1]) >= MOST_CHARACTERS:
        return None
    first = TableRow(line[0], tuple(_cells(line[1])))
    is_saved = any(names <= set(first.cells) for names in keys)
    if not is_saved and not any(names <= set(first.cells) for names in heads):
        return None
    rows, size, why, number = list[TableRow](), len(line[1]), None, line[0]
    at = begin
    for at, number, text in lines.after(begin):  # noqa: B007 - where it ended
        if not text.strip():
            continue
        if (is_saved and "," not in text) or text.lstrip().startswith(("```", "~~~")) or size >= MOST_CHARACTERS:
            why = "a table of more than 1 MiB" if size >= MOST_CHARACTERS else None
            break
        size += len(text)
        rows.append(TableRow(number, tuple(_cells(text))))
    else:
        at += 1
        why = "the table's last line is cut off" if (rows or [first])[-1].line == number else None
    if not is_saved:
        names = {cell: row.line for row in reversed([first, *rows]) for cell in row.cells[:1]}
        names |= dict.fromkeys(first.cells, first.line)
        table = TextTable([[first], rows])
        return [Piece("csv", first.line, (rows or [first])[-1].line, names, tables=[table], broken=why)], at
    return [_saved(row, first.cells, why if row is rows[-1] else None) for row in rows], at


def _saved(row: TableRow, head: tuple[str, ...], why: str | None) -> Piece:
    """The object in a row."""
    if len(row.cells) != len(head):
        why = f"{len(row.cells)} columns where the table's head has {len(head)}"
    content = {name: _value(text) for name, text in zip(head, row.cells, strict=False) if name and text}
    return Piece("json", row.line, row.line, dict.fromkeys(head, row.line), document=content, broken=why)


def _cells(line: str) -> list[str]:
    try:
        return next(csv.reader([line]), [])
    except csv.Error:
        return []


def _value(text: str) -> Any:
    """A cell as the value that was saved: a number, a truth, a text."""
    try:
        return json.loads(text.replace("True", "true").replace("False", "false"))
    except (ValueError, RecursionError):
        return text
