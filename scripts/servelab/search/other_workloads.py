"""The answer on the other workloads: where the winner loses, and whether winner or baseline is better on each.

Only what was measured for the answer counts, in the proof or in the logs of a recorded study: other candidates were
measured by the search, on the workload that decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from servelab.metrics.definitions import METRICS
from servelab.results.start_columns import SATURATED
from servelab.search.decide import judged, unfit
from servelab.search.recommended import BestOfWorkload, Improvement
from servelab.search.standing import Row, disturbed, is_barred, too_many_failed
from servelab.study.kinds import SearchedStudy
from servelab.study.study import Study

BASELINE, WINNER = "baseline", "winner"

Change = tuple[float | None, float | None, float | None]
_NONE: Change = (None, None, None)


def judge_loss(study: SearchedStudy, table: pd.DataFrame, gain: Improvement) -> tuple[str, str]:
    """Whether the winner loses too much on the gain's workload (`holds`, `loses` or `unclear`), and why.

    `table` is the last stage's table, `gain` the winner against the baseline there. The winner `loses` if its loss
    exceeds `objective.max_loss_percent` beyond noise, or if only the baseline has a valid run. It is `unclear` if the
    change's 95 % interval includes such a loss, if all starts of a side were disturbed, or if too many requests failed
    with the winner alone. Logs without an interval are judged by the change alone; a proof
    without one is `unclear`.
    """
    most = study.objective.max_loss_percent
    sides = {row["candidate"]: row for row in _rows(table) if row["workload"] == gain.workload}
    if len(sides) > 1 and all(row["outcome"] == SATURATED for row in sides.values()):
        return "holds", "both are saturated at a lower rate"
    wrong = {name: unfit(study, row) for name, row in sides.items()}
    if wrong.get(WINNER) or wrong.get(BASELINE):
        name = WINNER if wrong.get(WINNER) and not wrong.get(BASELINE) else BASELINE
        found = wrong[name]
        return ("loses" if name == WINNER else "unclear"), f"the {name}: {found[1] if found else ''}"
    for name, row in sides.items():
        if what := disturbed(row):
            return "unclear", f"the {name} was disturbed: {what}"
    if len(sides) > 1 and is_barred(study, sides[WINNER], sides[BASELINE]):
        return "unclear", f"the {WINNER}: {too_many_failed(study, sides[WINNER])}"
    value, low, high = gain.change_percent, gain.change_ci95_low_percent, gain.change_ci95_high_percent
    if value is None:
        return "unclear", "the two cannot be compared"
    sign = 1 if METRICS.get(study.objective.metric).higher_is_better else -1
    if low is None or high is None:
        word = "unclear" if isinstance(study, Study) else "loses" if sign * value < -most else "holds"
        return word, f"{value:+.1f} %, no interval"
    text = f"{value:+.1f} % (95 % interval {low:+.1f} to {high:+.1f} %)"
    if sign * value < -most and not low <= 0 <= high:
        return "loses", text
    reaches = min(sign * low, sign * high) < -most
    return ("unclear", f"{text}; a loss of more than {most:g} % is possible") if reaches else ("holds", text)


def best_by_workload(
    study: SearchedStudy,
    table: pd.DataFrame,
    gains: Sequence[Improvement],
    recommended: str,
    titles: Mapping[str, str],
) -> list[BestOfWorkload]:
    """What to use on each workload, `winner` or `baseline`; a workload on which neither has a valid run is left out.

    `table` is the last stage's table, `gains` the winner against the baseline on each workload, `recommended` the side
    that is recommended. It is kept unless the other one is better beyond noise and margin; on the workload that decides
    it is always kept.
    """
    found = []
    gain_on = {gain.workload: gain for gain in gains}
    for workload in study.workloads:
        fit = {
            row["candidate"]: row for row in _rows(table) if row["workload"] == workload and unfit(study, row) is None
        }
        if fit:
            decides = workload == study.objective.on
            name, why, change = _best(study, recommended, fit, gain_on.get(workload), decides=decides)
            row = fit[name]
            found.append(
                BestOfWorkload(
                    workload=workload,
                    title=titles[workload],
                    candidate=name,
                    is_recommended=name == recommended,
                    why=why,
                    engine=row["engine"],
                    engine_version=row["engine_version"],
                    command=row["command"],
                    run_id=row["run_id"],
                    value=float(row["objective_value"]),
                    change_percent=change[0],
                    change_ci95_low_percent=change[1],
                    change_ci95_high_percent=change[2],
                )
            )
    return found


def _best(
    study: SearchedStudy, recommended: str, fit: Mapping[str, Row], gain: Improvement | None, *, decides: bool
) -> tuple[str, str, Change]:
    """The better side, the reason, and its change against the recommended side."""
    if recommended not in fit:
        return next(iter(fit)), "the recommended configuration has no valid run here", _NONE
    if decides:
        return recommended, "the workload that decides", _NONE
    other = WINNER if recommended == BASELINE else BASELINE
    if other in fit and gain is not None and gain.change_percent is not None:
        change = _change_of(other, gain)
        if change[0] is not None and (change[1] is not None or not isinstance(study, Study)):
            verdict, why = judged(study, fit[other], fit[recommended], change)  # type: ignore[arg-type]
            if verdict == "better":
                return other, f"{why} against the recommended configuration", change
    return recommended, f"the {other} is not better beyond noise and margin", _NONE


def _change_of(side: str, gain: Improvement) -> Change:
    """The change of a side against the other one: the gain is the winner's against the baseline."""
    change = (gain.change_percent, gain.change_ci95_low_percent, gain.change_ci95_high_percent)
    if side == WINNER:
        return change
    value, low, high = (None if each is None or each <= -100 else 100 * (1 / (1 + each / 100) - 1) for each in change)
    return value, high, low


def _rows(table: pd.DataFrame) -> list[Row]:
    return table.to_dict("records")  # type: ignore[return-value]
