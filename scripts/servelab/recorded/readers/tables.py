"""Adds figures from the cells of tables that a tool prints."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal

from servelab.recorded.readers.consistency import Key
from servelab.recorded.readers.documents import Saved
from servelab.recorded.readers.pieces import Piece
from servelab.recorded.readers.table_layouts import Grid, GridRow

_NUMBER = re.compile(r"(?:\d+|\d{1,3}(?:,\d{3})+)(?:\.(?P<decimals>\d+))?")
ABSENT = frozenset({"N/A", "nan", "None", "-", ""})


class Cells:
    """Adds figures from cells of tables, and refuses a number in another form than its tool prints."""

    def __init__(self, piece: Piece) -> None:
        self.saved = Saved(piece)

    def add(self, key: Key, text: str, row: GridRow, decimals: int | None, factor: float = 1) -> None:
        """Adds a figure, converted by `factor`; its last digit says how far it is rounded.

        `decimals` is the number of digits after the point that the tool prints; None if it depends on the value.
        A text that means that there is no value adds a figure without one.
        """
        value, half_unit = self.number(text, row, decimals, factor)
        self.saved.add(key, value, row.cells[0] or key[0], half_unit, row.line)

    def number(self, text: str, row: GridRow, decimals: int | None, factor: float = 1) -> tuple[float | None, float]:
        """A number and half a unit of its last digit; None if the text means that there is no value.

        Commas between thousands only where digits after the point show that they are none of another locale's.
        """
        if text in ABSENT:
            return None, 0.0
        match = _NUMBER.fullmatch(text)
        digits = len(match["decimals"] or "") if match else 0
        if match is None or (decimals is not None and digits != decimals) or ("," in text and not decimals):
            form = "a number" if decimals is None else f"a number with {decimals} decimals"
            raise self.saved.error(f"`{row.cells[0]}` has `{text}`, not {form} as the tool prints it", row.line)
        value = float(Decimal(text.replace(",", "")) * Decimal(repr(factor)))
        if not math.isfinite(value):
            raise self.saved.error(f"`{row.cells[0]}` has {len(text):,} digits", row.line)
        return value, 0.5 * 10.0**-digits * factor if digits or decimals is None else 0.0

    def named(self, grid: Grid, unwrap: bool = False) -> Mapping[str, GridRow]:
        """Rows by their first cell; `ReadError` if one occurs twice.

        With `unwrap`, a row with nothing but a first cell continues the name of the row above it.
        """
        found: dict[str, GridRow] = {}
        name = ""
        for row in grid.rows:
            if unwrap and name and row.cells[0] and not any(row.cells[1:]):
                above = found.pop(name)
                row = replace(above, cells=(f"{name} {row.cells[0]}", *above.cells[1:]))
            name = row.cells[0]
            if name in found:
                raise self.saved.error(f"`{name}` occurs twice, first in line {found[name].line}", row.line)
            found[name] = row
        return found
