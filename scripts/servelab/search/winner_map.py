"""The winner map: for each curve, which configuration is the best from which load on.

It is what the pairs of the proof show, between baseline and winner; the logs of a recorded study prove nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby, pairwise
from typing import NamedTuple

import pandas as pd

from servelab.core.yaml_file import metric_label
from servelab.metrics.definitions import METRICS
from servelab.metrics.statistics import change_of_pairs
from servelab.results.compare_with_baseline import paired_labels
from servelab.search.decide import start_values, unfit
from servelab.search.decision import Row
from servelab.search.proof import BASELINE, WINNER, ProofPair, proved_change
from servelab.search.recommended import MapLevel, MapRange, WinnerMap
from servelab.study.plan import order_of
from servelab.study.project import SearchedStudy
from servelab.study.study import Study

_LEAST_PAIRS = 2

Best = tuple[str, ...]
BOTH: Best = (BASELINE, WINNER)
"""The two cannot be told apart."""


class Level(NamedTuple):
    """A measured load, above 0."""

    load: float
    log_ratios: Mapping[str, float]
    """Label of each pair → natural logarithm of winner / baseline; above 0 where the winner is better."""
    only: str | None = None
    """The side that can be used there, if the other one cannot."""

    def best(self) -> Best:
        """The better side here, or both."""
        if self.only or len(self.log_ratios) < _LEAST_PAIRS:
            return (self.only,) if self.only else BOTH
        low, high = change_of_pairs([*self.log_ratios.values()], [order_of(label) for label in self.log_ratios])[1:]
        assert low is not None and high is not None
        return (WINNER,) if low > 0 else (BASELINE,) if high < 0 else BOTH


def load_ranges(levels: Sequence[Level]) -> list[MapRange]:
    """The ranges, from the lowest measured load to the highest without gaps,.

    `levels` are in ascending order. Between two loads with different answers nothing is decided.
    """
    groups = [(best, list(group)) for best, group in groupby(levels, key=Level.best)]
    sided = [_range(best, group[0].load, group[-1].load) for best, group in groups if best != BOTH]
    first, last = levels[0].load, levels[-1].load
    ranges: list[MapRange] = []
    for before, after in pairwise([_range(BOTH, first, first), *sided, _range(BOTH, last, last)]):
        if len(before.best) == 1:
            ranges.append(before)
        if before.to_load < after.from_load:
            ranges.append(_range(BOTH, before.to_load, after.from_load))
    return ranges or [_range(BOTH, first, last)]


def _range(best: Best, first: float, last: float) -> MapRange:
    return MapRange(best=list(best), from_load=first, to_load=last)


UNITS = {"max_concurrency": "in flight", "request_rate": "requests/s"}


def winner_maps(study: SearchedStudy, table: pd.DataFrame) -> list[WinnerMap]:
    """A map for each curve of the study that was proved at two loads or more.

    `table` is the table of the last stage (schemas.STAGE_TABLE).
    """
    if not isinstance(study, Study):
        return []
    metric, basis = study.objective.metric_and_basis
    maps = []
    for curve, points in study.curves.items():
        measured = [level for point in points if (level := _level(study, point, table)) is not None]
        load = study.workloads[points[0]].load
        if load is not None and len(points) > 1 and measured:
            ranges = load_ranges([each for _, each in measured])
            rows = [row for row, _ in measured]
            text = f"Curve {curve}, by {metric_label(metric, basis)}: {_proved(load.of, rows, ranges)}."
            found = WinnerMap(
                curve=curve,
                load=load.of,
                metric=metric,
                basis=basis,
                text=text,
                levels=rows,
                ranges=ranges,
            )
            maps.append(found)
    return maps


def _level(study: Study, point: str, table: pd.DataFrame) -> tuple[MapLevel, Level] | None:
    """A point of the curve; None if neither side can be used there, or if there is no winner."""
    rows: list[Row] = table[table["workload"] == point].to_dict("records")  # type: ignore[assignment]
    sides = {row["candidate"]: row for row in rows}
    if not {BASELINE, WINNER} <= sides.keys():
        return None
    wrong = {side: reason[1] for side in BOTH if (reason := unfit(study, sides[side])) is not None}
    if len(wrong) == len(BOTH):
        return None
    pairs = {} if wrong else _pairs(sides)
    sign = 1 if METRICS.get(study.objective.metric).higher_is_better else -1
    ratios = {label: sign * pair.log_ratio for label, pair in pairs.items()}
    load = study.level_of(point)
    assert load is not None
    level = Level(load, ratios, next((side for side in BOTH if wrong and side not in wrong), None))
    change = proved_change(list(pairs.values())) if pairs else None
    row = MapLevel(
        load=load,
        workload=point,
        best=list(level.best()),
        pairs=len(pairs),
        change_percent=change and change.value,
        change_ci95_low_percent=change and change.low,
        change_ci95_high_percent=change and change.high,
        why="; ".join(f"{side}: {why}" for side, why in wrong.items()),
        is_suspect=any(sides[side]["validity"] == "suspect" for side in BOTH),
    )
    return row, level


def _pairs(sides: Mapping[str, Row]) -> dict[str, ProofPair]:
    """Label → the objective of each pair that counts; a value of 0 has no logarithm and is left out."""
    base, found = (dict(zip(sides[side]["start_labels"], start_values(sides[side]), strict=True)) for side in BOTH)
    labels = paired_labels(sides[BASELINE], sides[WINNER])
    pairs = {label: ProofPair(base[label], found[label], order_of(label)) for label in labels}
    return {label: pair for label, pair in pairs.items() if min(pair.baseline, pair.winner) > 0}


def _proved(load: str, levels: Sequence[MapLevel], ranges: Sequence[MapRange]) -> str:
    """The map in words: `up to 38 in flight the baseline is better; from 46 in flight the winner is better; …`."""
    unit = UNITS[load]
    lowest, highest = ranges[0].from_load, ranges[-1].to_load
    suspect = [f"{each.load:g}" for each in levels if each.is_suspect]
    doubt = f" (suspect at {', '.join(suspect)})" if suspect else ""
    measured = f"measured from {lowest:g} to {highest:g} {unit}{doubt}"
    if len(ranges) == 1:
        return f"at all loads {measured}, {_sides(ranges[0].best)}"
    parts = []
    for number, each in enumerate(ranges):
        between = f"from {each.from_load:.3g} to {each.to_load:.3g}"
        where = f"up to {each.to_load:.3g}" if number == 0 else between
        where = f"from {each.from_load:.3g}" if number + 1 == len(ranges) else where
        parts.append(f"{where} {unit} {_sides(each.best)}")
    return f"{'; '.join(parts)}; {measured}"


def _sides(best: Sequence[str]) -> str:
    if len(best) > 1:
        return "baseline and winner cannot be told apart"
    return f"the {best[0]} is better"
