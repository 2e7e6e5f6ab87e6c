"""Edit distance of two texts."""

from __future__ import annotations


def edit_distance(one: str, other: str) -> int:
    """Fewest characters to insert, delete or replace to make one text the other (Levenshtein).

    Myers 1999, J. ACM 46, 395, as Hyyrö 2001 gives it for whole texts: a column of the table is two whole numbers, one
    bit per character, so that texts of a thousand characters take a millisecond.
    """
    start = first_difference(one, other)
    if start is None:
        return 0
    one, other = one[start:], other[start:]
    if not one or not other:
        return len(one) + len(other)
    where: dict[str, int] = {}
    for position, character in enumerate(one):
        where[character] = where.get(character, 0) | 1 << position
    full, last = (1 << len(one)) - 1, 1 << (len(one) - 1)
    rises, falls, distance = full, 0, len(one)
    for character in other:
        equal = where.get(character, 0)
        diagonal = (((equal & rises) + rises) ^ rises) | equal | falls
        up = falls | (full & ~(diagonal | rises))
        down = rises & diagonal
        distance += bool(up & last) - bool(down & last)
        up, down = (up << 1 | 1) & full, (down << 1) & full
        rises, falls = down | (full & ~(diagonal | up)), up & diagonal
    return distance


def first_difference(one: str, other: str) -> int | None:
    """The first position, from 0, where the texts differ; None if they are equal."""
    pairs = enumerate(zip(one, other, strict=False))
    return None if one == other else next((at for at, (x, y) in pairs if x != y), min(len(one), len(other)))
