"""Readers: turn what a load client printed or saved into plain figures under the names of docs/reference/metrics.md.

A file is split into *pieces* (a console block, a JSON document, a table). The reader of a piece is the one whose
markers, the lines or keys that only its tool writes, are all in it; file names do not matter. A piece that is cut off
or contradicts itself is an error with file and line; a line that no reader knows is kept and reported.

Checks follow from the tool's own definitions: a rate is its amount over the duration, parts add up, percentiles are in
order. So a wrong digit is found if other figures in the block determine the figure, as far as the printed digits allow.
A wrong digit in an independent figure cannot be found.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import yaml

from servelab.recorded.readers import shapes
from servelab.recorded.readers.blocks import LineBlocks, SectionBlocks, TitledBlocks
from servelab.recorded.readers.figures import VALUE, DefinedBy, FigureForm, PrintedFigure
from servelab.recorded.readers.pieces import Finder, Piece, ReadError
from servelab.recorded.readers.results import READERS, Block, Reader, UnknownLine
from servelab.recorded.readers.split import decoded, split
from servelab.recorded.readers.tables import Csv, EmbeddedJson, Tables, gathered

__all__ = [
    "READERS",
    "VALUE",
    "Block",
    "PrintedFigure",
    "ReadError",
    "Reader",
    "UnknownLine",
    "UnknownResultError",
    "read_file",
    "scan_file",
]

_FACTS = ("within", "swept_by", "each", "version_at", "settings_at", "cell_units", "heads")
_SETS = ("markers", "ignored", "partial")
_ROWS = ("rules", "within_run", "required")
_FORMS = ("figures", "families")
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
        mode = path.stat().st_mode
        if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
            yield ReadError(f"{path}: is a device, not a log")
            return
        with path.open("rb") as file:
            yield from _scan(str(path), file, notes)
    except OSError as error:
        yield ReadError(f"{path}: {error.strerror}")


def _scan(name: str, file: BinaryIO, notes: list[str] | None) -> Iterator[Block | ReadError]:
    grids = [reader for reader in READERS if reader.form == "grid"]
    orders = [(reader.markers, *reader.following) for reader in grids]
    keys = [reader.markers for reader in READERS if reader.form == "json"]
    heads = [frozenset(reader.facts["heads"]) for reader in READERS if reader.form == "csv"]
    names = [names for order in orders for names in order]
    below = [reader.markers for reader in grids if reader.below]
    others: dict[str, list[int]] = {"tables": [], "JSON objects": []}

    def is_known(label: str) -> bool:
        return any(reader.form == "console" and reader.knows(label) for reader in READERS)

    def finders() -> list[Finder]:
        tables, objects = Tables(names, below, others["tables"]), EmbeddedJson(keys, others["JSON objects"])
        return [TitledBlocks(is_known), tables, SectionBlocks(), LineBlocks(), Csv(heads, keys), objects]

    errors, found = 0, False
    for piece in gathered(split(name, decoded(file), finders, keys), orders):
        if _is_anothers(piece):
            others["JSON objects" if piece.form == "json" else "tables"].append(piece.first_line)
            continue
        found = True
        try:
            yield from _read(piece)
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
        beside = ", ".join(f"{len(lines)} {what}" for what, lines in others.items() if lines)
        tools = ", ".join(sorted({reader.tool for reader in READERS}))
        beside = f" ({beside})" if beside else ""
        yield UnknownResultError(f"{name}: no result of a load client found{beside}. Known: {tools}")


def read_file(path: Path) -> list[Block]:
    """Every block of a file in order; `ReadError` for the first unreadable one, or if there is none."""
    blocks = []
    for block in scan_file(path):
        if isinstance(block, ReadError):
            raise block
        blocks.append(block)
    return blocks


def _is_anothers(piece: Piece) -> bool:
    """Whether another program has written it; console blocks and saved tables are always results.

    A table of a result's names without a number explains them.
    """
    cells = (cell for table in piece.tables for row in table.rows for cell in row.cells[1:])
    if piece.form == "grid" and not any(cell[:1].isdigit() for cell in cells):
        return bool(piece.tables[0].rows)
    is_common = piece.form in ("grid", "frame") or (piece.form == "json" and not piece.broken)
    return is_common and not _fitting(piece)


def _fitting(piece: Piece) -> list[Reader]:
    return [reader for reader in READERS if reader.form == piece.form and reader.markers <= piece.lines.keys()]


def _read(piece: Piece) -> list[Block]:
    """The blocks of a piece; `ReadError` for any piece that its tool has not written so."""
    if piece.broken:
        raise piece.error(piece.broken)
    fitting = _fitting(piece)
    if not fitting:
        names = ", ".join(list(piece.lines)[:4]) or "empty, or abbreviated"
        raise piece.error(f"no reader knows this {piece.form} result ({names})")
    reader = max(fitting, key=lambda each: len(each.markers))
    relatives = [other for other in READERS if other.form == piece.form and other.markers & reader.markers]
    for name, line in piece.lines.items() if piece.form in ("console", "json") else ():
        owners = [] if reader.knows(name) else sorted({other.tool for other in relatives if other.knows(name)})
        if owners:
            others = f"a line of {', '.join(owners)}, but the others are from {reader.tool}"
            raise piece.error(f"`{name}` is {others}: lines are missing, two are mixed, or others wrote it", line)
    try:
        blocks = reader.read(piece)
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        why = f"{type(error).__name__}: {error}"
        raise piece.error(f"not a result as {reader.tool} writes it ({why})") from None
    if not blocks:
        raise piece.error(f"a table of {reader.tool} without rows")
    return blocks


def _load_tables() -> None:
    """Registers the readers of all tools. What a table says above its readers holds for each that does not say it."""
    for path in sorted((Path(__file__).parent / "tools").glob("*.yaml")):
        common = yaml.safe_load(path.read_text(encoding="utf-8"))
        for name, own in common.pop("readers").items():
            READERS.register(name, _reader({**common, **own}))


def _reader(said: dict[str, Any]) -> Reader:
    named = str.casefold if said.get("fold") else str
    facts = {key: said.pop(key) for key in _FACTS if key in said}
    found = {
        **said,
        **{key: frozenset(said[key]) for key in _SETS if key in said},
        **{key: tuple(said[key]) for key in _ROWS if key in said},
        **{key: {named(name): FigureForm.parsed(row) for name, row in said.get(key, {}).items()} for key in _FORMS},
        "following": tuple(map(frozenset, said.get("following", ()))),
        "percentiles": frozenset(said["percentiles"]) if "percentiles" in said else None,
        "definitions": {
            metric: DefinedBy(each) if isinstance(each, str) else DefinedBy(each[1], each[0])
            for metric, each in said.get("definitions", {}).items()
        },
        "shape": getattr(shapes, said.get("shape", "rows")),
        "facts": facts,
    }
    return Reader(**found)


_load_tables()
