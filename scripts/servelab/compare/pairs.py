"""Which run of one study belongs to which of the other: the one that differs in nothing but what is compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from servelab.compare.facts import Difference, blocking, differences, key
from servelab.compare.sides import Run


@dataclass(frozen=True)
class Pair:
    """Two runs, or one that has no counterpart."""

    a: Run | None
    b: Run | None
    differences: list[Difference]
    """In what the two differ; of one alone, in what it differs from the run of the other study most like it."""
    blocking: list[Difference]
    """Of these, what keeps them from being compared."""
    nearest: Run | None = None
    """Of one alone, the run most like it."""

    @property
    def is_comparable(self) -> bool:
        """Whether they differ in nothing but what is compared."""
        return self.a is not None and self.b is not None and not self.blocking


def pair_runs(a: Sequence[Run], b: Sequence[Run], *, answers: bool = False) -> list[Pair]:
    """Every run in one pair: those that can be compared first, each with the run least different from it.

    Of the others, runs of one candidate's name and workload are put beside each other, and the rest stand alone.
    `answers` may also differ in their configuration.
    """
    found = _comparable(a, b, answers)
    found += _namesakes(*_left(a, b, found), answers)
    alone_a, alone_b = _left(a, b, found)
    found += [_alone(run, None, b, answers) for run in alone_a] + [_alone(None, run, a, answers) for run in alone_b]
    order = {id(run): position for position, run in enumerate([*a, *b])}
    return sorted(found, key=lambda pair: order[id(pair.a or pair.b)])


def _comparable(a: Sequence[Run], b: Sequence[Run], answers: bool) -> list[Pair]:
    complete = all(run.facts.complete is not None for run in [*a, *b])
    groups: dict[str, list[Run]] = {}
    for run in b:
        groups.setdefault(key(run.facts, complete=complete, answers=answers), []).append(run)
    possible = [
        _pair(run, other, answers)
        for run in a
        for other in groups.get(key(run.facts, complete=complete, answers=answers), [])
    ]
    return _each_once(sorted((pair for pair in possible if not pair.blocking), key=lambda pair: len(pair.differences)))


def _namesakes(a: Sequence[Run], b: Sequence[Run], answers: bool) -> list[Pair]:
    return _each_once(
        [
            _pair(run, other, answers)
            for run in a
            for other in b
            if run.workload == other.workload and (answers or run.labels.keys() & other.labels.keys())
        ]
    )


def _alone(a: Run | None, b: Run | None, others: Sequence[Run], answers: bool) -> Pair:
    run = a or b
    assert run is not None
    pairs = [_pair(run, other, answers) if a else _pair(other, run, answers) for other in others]
    if not pairs:
        return Pair(a, b, [], [])
    like = min(pairs, key=lambda pair: (len(pair.blocking), len(pair.differences)))
    return Pair(a, b, like.differences, like.blocking, nearest=like.b if a else like.a)


def _pair(a: Run, b: Run, answers: bool) -> Pair:
    found = differences(a.facts, b.facts)
    return Pair(a, b, found, blocking(found, answers=answers))


def _each_once(pairs: Sequence[Pair]) -> list[Pair]:
    """The pairs in order, but for those of which one run is in an earlier one."""
    taken: set[int] = set()
    kept = []
    for pair in pairs:
        if id(pair.a) not in taken and id(pair.b) not in taken:
            taken |= {id(pair.a), id(pair.b)}
            kept.append(pair)
    return kept


def _left(a: Sequence[Run], b: Sequence[Run], pairs: Sequence[Pair]) -> tuple[list[Run], list[Run]]:
    taken = {id(run) for pair in pairs for run in (pair.a, pair.b)}
    return [run for run in a if id(run) not in taken], [run for run in b if id(run) not in taken]
