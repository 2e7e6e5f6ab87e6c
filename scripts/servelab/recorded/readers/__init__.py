"""Readers: turn what a load client printed or saved into plain figures under the names of docs/reference/metrics.md.

A file is split into *pieces* (a console block, a JSON document, a table). The reader of a piece is the one whose
markers, the lines or keys that only its tool writes, are all in it. A line that no reader knows is kept and reported.

A piece that is cut off or contradicts itself is an error with file and line: a rate is its amount over the duration,
parts add up, percentiles are in order. A wrong digit in an independent figure cannot be found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import BinaryIO

from servelab.core.yaml_file import read_shipped
from servelab.recorded.readers import blocks, shapes, tables
from servelab.recorded.readers.figures import VALUE
from servelab.recorded.readers.lines import opened, streams
from servelab.recorded.readers.pieces import Finder, Piece, ReadError, find
from servelab.recorded.readers.results import Block, Reader
from servelab.recorded.readers.tables import gathered

__all__ = ["VALUE", "Block", "ReadError", "UnknownResultError", "read_file", "scan_file"]


_MOST_ERRORS = 100
"""Errors of a file; after that it is not read on."""


class UnknownResultError(ReadError):
    """A file without a result that a reader knows."""


def scan_file(path: Path, notes: list[str] | None = None) -> Iterator[Block | ReadError]:
    """Each block of a file in order, or the error that prevents reading it.

    A file without any block, or one that cannot be opened, gives one error. Tables and objects that no reader knows
    are counted in `notes`.
    """
    try:
        if path.is_char_device() or path.is_block_device():
            yield ReadError(f"{path}: is a device, not a log")
            return
        with path.open("rb", buffering=1 << 18) as file:
            yield from _scan(str(path), file, notes)
    except OSError as error:
        yield ReadError(f"{path}: {error.strerror}")


def read_file(path: Path) -> list[Block]:
    """Every block of a file in order; `ReadError` for the first unreadable one, or if there is none."""
    found = list(scan_file(path))
    for error in (each for each in found if isinstance(each, ReadError)):
        raise error
    return [each for each in found if isinstance(each, Block)]


def _scan(name: str, file: BinaryIO, notes: list[str] | None) -> Iterator[Block | ReadError]:
    others: dict[str, list[int]] = {"tables": [], "JSON objects": []}
    errors, found = 0, False
    for piece in _pieces(file, others):
        found = True
        try:
            yield from _read(replace(piece, file=name))
        except ReadError as error:
            yield error
            errors += 1
        if errors == _MOST_ERRORS:
            yield ReadError(f"{name}: {_MOST_ERRORS} results could not be read; the rest is not looked at")
            return
    if notes is not None:
        for what, lines in others.items():
            notes += [f"{name}:{min(lines)}: {len(lines)} {what} that no reader knows, the first here"] if lines else []
    if not found:
        tools = ", ".join(sorted({reader.tool for reader in _READERS}))
        yield UnknownResultError(f"{name}: no result of a load client found. Known: {tools}")


def _pieces(file: BinaryIO, others: dict[str, list[int]]) -> Iterator[Piece]:
    """The results of a file, each in one piece. The lines of tables and objects of other programs go to `others`."""
    documents, texts = streams(*opened(file), _has_names)
    results = [gathered(_sorted_out(find(lines, _FINDERS), _has_names, others), _ORDERS) for lines in texts]
    pieces = sorted(chain.from_iterable(results), key=lambda piece: piece.first_line)
    yield from _sorted_out(pieces or documents, _is_result, others)


def _sorted_out(
    pieces: Iterable[Piece], is_ours: Callable[[Piece], bool], others: dict[str, list[int]]
) -> Iterator[Piece]:
    for piece in pieces:
        if is_ours(piece):
            yield piece
        else:
            others["JSON objects" if piece.form == "json" else "tables"].append(piece.first_line)


def _has_names(piece: Piece) -> bool:
    """Whether a table or an object has names of a result; console blocks and saved tables always are results."""
    return piece.form not in _NAMES or any(names <= piece.lines.keys() for names in _NAMES[piece.form])


def _is_result(piece: Piece) -> bool:
    """Whether a reader knows it. A table of a result's names without a number explains them."""
    if piece.form == "grid":
        cells = (cell for table in piece.tables for row in table.rows for cell in row.cells[1:])
        return bool(_fitting(piece)) and (any(cell[:1].isdigit() for cell in cells) or not piece.tables[0].rows)
    return _has_names(piece)


def _fitting(piece: Piece) -> list[Reader]:
    return [reader for reader in _READERS if reader.form == piece.form and reader.markers <= piece.lines.keys()]


def _read(piece: Piece) -> list[Block]:
    """The blocks of a piece; `ReadError` for any piece that its tool has not written so."""
    if piece.broken:
        raise piece.error(piece.broken)
    if not (fitting := _fitting(piece)):
        names = ", ".join(list(piece.lines)[:4]) or "empty, or abbreviated"
        raise piece.error(f"no reader knows this {piece.form} result ({names})")
    reader = max(fitting, key=lambda each: len(each.markers))
    relatives = [other for other in _READERS if other.form == piece.form and other.markers & reader.markers]
    for name, line in piece.lines.items() if piece.form in ("console", "json") else ():
        owners = [] if reader.knows(name) else sorted({other.tool for other in relatives if other.knows(name)})
        if owners:
            others = f"a line of {', '.join(owners)}, but the others are from {reader.tool}"
            raise piece.error(f"`{name}` is {others}: lines are missing, two are mixed, or others wrote it", line)
    try:
        runs = getattr(shapes, reader.shape)(reader, piece)
        blocks = [reader.block(piece, run) for run in runs]
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        why = f"{type(error).__name__}: {error}"
        raise piece.error(f"not a result as {reader.tool} writes it ({why})") from None
    if not blocks:
        raise piece.error(f"a table of {reader.tool} without rows")
    return blocks


def _loaded() -> Iterator[tuple[str, Reader]]:
    """The readers of all tools. What a table says above its readers holds for each that does not say it."""
    for path in (Path(__file__).parent / "tools").glob("*.yaml"):
        common = read_shipped(path)
        for name, own in common.pop("readers").items():
            yield name, Reader(**{**common, **own})


_READERS = [reader for _, reader in sorted(_loaded(), key=lambda named: named[0])]
_ORDERS = [(reader.markers, *reader.following) for reader in _READERS if reader.form == "grid"]
_NAMES = {
    form: [names for reader in _READERS if reader.form == form for names in (reader.markers, *reader.following)]
    for form in ("frame", "grid", "json")
}
_HEADS = [frozenset(reader.facts["heads"]) for reader in _READERS if reader.form == "csv"]

_FINDERS: list[Finder] = [
    partial(blocks.titled, is_known=lambda name: any(each.form == "console" and each.knows(name) for each in _READERS)),
    partial(tables.drawn, below=[reader.markers for reader in _READERS if reader.below]),
    blocks.sections,
    blocks.printed_lines,
    partial(tables.comma_separated, heads=_HEADS, keys=_NAMES["json"]),
    tables.embedded_json,
]
