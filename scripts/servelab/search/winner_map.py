"""The winner map: for each curve, which configuration is the best from which load on.

It is what the pairs of the proof show, between baseline and winner; the logs of a recorded study prove nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, pairwise

import pandas as pd

from servelab.core.figure_text import metric_label
from servelab.metrics.statistics import Interval, change_columns
from servelab.search.decide import can_win, unfit
from servelab.search.decision import PastStage, rows_of
from servelab.search.proof import BASELINE, WINNER, proved_change
from servelab.search.proof_plan import by_second, pairs_of
from servelab.search.recommended import FrontPoint, MapLevel, MapRange, WinnerMap
from servelab.study.project import SearchedStudy
from servelab.study.study import Study

BOTH = [BASELINE, WINNER]
"""The two cannot be told apart."""
UNITS = {"max_concurrency": "in flight", "request_rate": "requests/s"}


def winner_maps(study: SearchedStudy, table: pd.DataFrame) -> list[WinnerMap]:
    """A map for each curve of the study that was proved at two loads or more.

    `table` is the table of the last stage (schemas.STAGE_TABLE).
    """
    if not isinstance(study, Study):
        return []
    metric, (_, basis) = study.objective.name, study.objective.metric_and_basis
    maps = []
    for curve, points in study.curves.items():
        levels = [level for point in points if (level := _level(study, point, table)) is not None]
        load = study.workloads[points[0]].load
        if load is not None and len(points) > 1 and levels:
            ranges = load_ranges(levels)
            text = f"Curve {curve}, by {metric_label(metric, basis)}: {_proved(load.of, levels, ranges)}."
            of = {"curve": curve, "load": load.of, "metric": metric, "basis": basis, "text": text}
            maps.append(WinnerMap.model_validate({**of, "levels": levels, "ranges": ranges}))
    return maps


def front(study: Study, second: Study, past: Sequence[PastStage]) -> list[FrontPoint]:
    """`Recommended.front`; `second` is the study by its second objective, `past` the stages of the search."""
    found: dict[str, FrontPoint] = {}  # the last row of a configuration has the most starts
    tables = [each.table[each.table["workload"] == study.objective.on] for each in past if each.table is not None]
    for table in tables:
        rows = rows_of(table)
        for row, other in zip(rows, rows_of(by_second(table)), strict=True):
            if can_win(study, row, rows[0]):
                names = {"candidate": row["candidate"], "run_id": row["run_id"]}
                values = {"value": row["objective_value"], "second_value": other["objective_value"]}
                found[row["run_id"]] = FrontPoint.model_validate(names | values)
    sign, other_sign = study.objective.sign, second.objective.sign
    points: list[FrontPoint] = []
    for point in sorted(found.values(), key=lambda each: (-sign * each.value, -other_sign * each.second_value)):
        if not points or other_sign * point.second_value > other_sign * points[-1].second_value:
            points.append(point)
    return points


def load_ranges(levels: Sequence[MapLevel]) -> list[MapRange]:
    """The ranges, from the lowest measured load to the highest without gaps.

    `levels` are in ascending order. Between two loads with different answers nothing is decided.
    """
    groups = [(best, list(group)) for best, group in groupby(levels, key=lambda level: level.best)]
    sided = [_range(best, group[0].load, group[-1].load) for best, group in groups if best != BOTH]
    first, last = levels[0].load, levels[-1].load
    ranges: list[MapRange] = []
    for before, after in pairwise([_range(BOTH, first, first), *sided, _range(BOTH, last, last)]):
        if len(before.best) == 1:
            ranges.append(before)
        if before.to_load < after.from_load:
            ranges.append(_range(BOTH, before.to_load, after.from_load))
    return ranges or [_range(BOTH, first, last)]


def _range(best: list[str], first: float, last: float) -> MapRange:
    return MapRange(best=best, from_load=first, to_load=last)


def _level(study: Study, point: str, table: pd.DataFrame) -> MapLevel | None:
    """A point of the curve; None if neither side can be used there, or if there is no winner."""
    sides = {row["candidate"]: row for row in rows_of(table[table["workload"] == point])}
    if not {*BOTH} <= sides.keys():
        return None
    wrong = {side: reason[1] for side in BOTH if (reason := unfit(study, sides[side])) is not None}
    if len(wrong) == len(BOTH):
        return None
    pairs = [] if wrong else pairs_of(table, point)
    change = proved_change(pairs) if pairs else None
    return MapLevel.model_validate(
        {
            "load": study.level_of(point),
            "workload": point,
            "best": [side for side in BOTH if side not in wrong] if wrong else _better(study, change),
            "pairs": len(pairs),
            **change_columns(change),
            "why": "; ".join(f"{side}: {why}" for side, why in wrong.items()),
            "is_suspect": any(sides[side]["validity"] == "suspect" for side in BOTH),
        }
    )


def _better(study: Study, change: Interval | None) -> list[str]:
    """The side that the interval of the winner's change shows to be better, or both."""
    if change is None or change.low is None or change.high is None or change.low <= 0 <= change.high:
        return BOTH
    return [WINNER] if study.objective.sign * change.value > 0 else [BASELINE]


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
