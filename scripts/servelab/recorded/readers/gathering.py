"""Gathers the tables that belong to one result of a tool."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from servelab.recorded.readers.pieces import Piece


def gathered(pieces: Iterable[Piece], orders: Iterable[tuple[frozenset[str], ...]]) -> Iterator[Piece]:
    """Pieces of a file, where the tables of one result are one piece; tables that belong to none stay alone.

    `orders` gives for each reader the names in its first table, and those in the others that may follow. A result that
    is printed twice in a row counts once.
    """
    known = list(orders)
    held: Piece | None = None
    order: tuple[frozenset[str], ...] = ()
    used: set[int] = set()
    last: Piece | None = None
    for piece in pieces:
        if piece.form == "grid":
            follows = next((n for n, names in enumerate(order) if n and n not in used and names <= piece.names), None)
            if held is not None and follows is not None:
                used.add(follows)
                held = _joined(held, piece)
                continue
            begins = next((each for each in known if each[0] <= piece.names), None)
            if begins is None:
                if not any(names <= piece.names for each in known for names in each):
                    yield piece
                    continue
                begins = ()
            if held is not None and not _same(held, last):
                yield held
            last, held, order, used = held or last, piece, begins, set()
            continue
        if held is not None and not _same(held, last):
            yield held
        last, held, order = None, None, ()
        yield piece
    if held is not None and not _same(held, last):
        yield held


def _joined(piece: Piece, other: Piece) -> Piece:
    return replace(
        piece,
        last_line=other.last_line,
        lines={**other.lines, **piece.lines},
        grids=[*piece.grids, *other.grids],
        broken=piece.broken or other.broken,
    )


def _same(piece: Piece, other: Piece | None) -> bool:
    if other is None or len(piece.grids) != len(other.grids):
        return False
    return all(one.same_text(two) for one, two in zip(piece.grids, other.grids, strict=True))
