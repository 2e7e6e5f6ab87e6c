"""Compares two measurements of one configuration, between versions or between studies: verdict, reason, change."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from servelab.core.errors import ServelabError
from servelab.measure.outcome import place_of
from servelab.measure.run_files import RunManifest, fact_text
from servelab.metrics.statistics import Interval
from servelab.search.decide import StartNoise, compare, pooled_noise, relative_change, unfit
from servelab.search.decision import disturbed, too_many_failed
from servelab.study.project import SearchedStudy

VERDICTS = ("better", "worse", "no difference", "new failure", "fixed failure", "still fails", "not comparable")
_FAILED = ("failed", "refused")


class Side(Protocol):
    """The data of a run that is compared."""

    @property
    def row(self) -> dict[str, Any]:
        """Columns of schemas.STAGE_TABLE, which show whether the run can be compared."""
        ...

    @property
    def values(self) -> Sequence[float]:
        """The objective on each server start, on the study's basis."""
        ...


def judge(
    study: SearchedStudy,
    before: Side,
    after: Side,
    names: tuple[str, str] = ("before", "after"),
    *,
    noise: StartNoise,
) -> tuple[str, str, Interval | None]:
    """Verdict (one of `VERDICTS`), reason, and change in percent from `before` to `after` with its 95 % interval.

    The rule is that of a stage's decision, with `before` as the incumbent. Only the study's objective is read. `names`
    are the words for the two sides in the reason. The interval is by the `noise` between server starts.
    """
    unfit_before, unfit_after = unfit(study, before.row), unfit(study, after.row)
    rates = [too_many_failed(study, side.row) for side in (before, after)]
    if not all(rates):  # of both, they are compared; of one, the other is the better one, whatever its speed
        unfit_before = unfit_before or (("failed", rates[0]) if rates[0] else None)
        unfit_after = unfit_after or (("failed", rates[1]) if rates[1] else None)
    was_ok, is_ok = (found is None or found[0] not in _FAILED for found in (unfit_before, unfit_after))
    if unfit_before and unfit_after and not was_ok and not is_ok:
        same = unfit_before[1] == unfit_after[1]
        return "still fails", unfit_after[1] if same else f"{unfit_after[1]} ({names[0]}: {unfit_before[1]})", None
    if unfit_after and not is_ok:
        return "new failure", unfit_after[1], None
    if unfit_before and not was_ok:
        return "fixed failure", f"{names[0]}: {unfit_before[1]}", None
    for name, row in zip(names, (before.row, after.row), strict=True):
        if what := disturbed(row):
            return "not comparable", f"{name}: disturbed, {what}", None
    for name, found in zip(names, (unfit_before, unfit_after), strict=True):
        if found:
            return "not comparable", f"{name}: {found[0]}: {found[1]}", None
    if sum(before.values) <= 0:
        return "not comparable", f"{names[0]}: {study.objective.metric} was 0", None
    change = relative_change({"start_values": after.values}, {"start_values": before.values}, noise)
    word, why = compare(study, *change)
    for name, row in zip(names, (before.row, after.row), strict=True):
        if rate := too_many_failed(study, row):
            why += f"; {name}: {rate}"
        if row["validity"] == "suspect":
            why += f"; suspect {name}: {row['validity_note']}"
    return word if word in ("better", "worse") else "no difference", why, change


def noise_of_sides(sides: Iterable[Side]) -> StartNoise:
    """The noise between server starts, from all configurations that are compared under one load.

    A configuration that was started once says nothing of it, so those that were started again count for all.
    """
    return pooled_noise(side.values for side in sides if side.values and min(side.values) > 0)


def comparison_row(row: Mapping[str, Any], values: Sequence[float]) -> dict[str, Any]:
    """The columns that `judge` reads; the objective is the mean of `values`."""
    return {name: row[name] for name in ("outcome", "reason", "message", "success_rate")} | {
        "objective_value": sum(values) / len(values) if values else math.nan,
        "validity": row.get("validity"),
        "validity_note": row.get("validity_note"),
        "disturbed": row.get("disturbed"),
    }


def machine_of(manifest: Path) -> dict[str, str]:
    """The facts of a run's place (cluster.md); empty if its manifest cannot be read."""
    try:
        return place_of(RunManifest.read(manifest)).facts
    except ServelabError:
        return {}


def machine_changes(before: Mapping[str, str], after: Mapping[str, str]) -> str | None:
    """How two machines differ in the facts known for both: `kernel 5.10.0 → 6.1.0`; None if they do not."""
    changed = [
        f"{fact_text(name, before[name])} → {after[name]}"
        for name in before.keys() & after.keys()
        if before[name] != after[name]
    ]
    return "; ".join(sorted(changed)) or None
