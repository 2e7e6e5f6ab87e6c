"""Pairs the runs of two studies: two runs belong together if they differ only in what a comparison may be about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from servelab.report.compare.facts import Difference, blocking, differences, key
from servelab.report.compare.sides import Run


@dataclass(frozen=True)
class Pair:
    """Two runs, or one without a counterpart."""

    a: Run | None
    b: Run | None
    differences: list[Difference]
    """Fields in which the two differ; for one alone, its differences from the most similar run of the other study."""
    blocking: list[Difference]
    """Those of the differences that make the two not comparable."""
    nearest: Run | None = None
    """For one alone, the most similar run."""

    @property
    def is_comparable(self) -> bool:
        """Whether they differ only in what a comparison may be about."""
        return self.a is not None and self.b is not None and not self.blocking


def pair_runs(a: Sequence[Run], b: Sequence[Run], *, answers: bool = False) -> list[Pair]:
    """Puts every run into one pair: comparable runs first, each with the run that differs least from it.

    Of the others, runs with the same candidate's name and workload form pairs, and the rest have no counterpart.
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
    """The pairs in order, without those that share a run with an earlier pair."""
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
