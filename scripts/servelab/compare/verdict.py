"""Two measured sides of one configuration against each other, for versions and for studies: verdict, reason, change."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from servelab.decide import compare, unfit
from servelab.searched import SearchedStudy
from servelab.statistics import Interval, ratio_ci95

VERDICTS = ("better", "worse", "no difference", "new failure", "fixed failure", "still fails", "not comparable")
_MACHINE = ("cpu", "cpus_usable", "kernel")
_FAILED = ("failed", "refused")


class Side(Protocol):
    """What is compared of a run."""

    @property
    def row(self) -> dict[str, Any]:
        """What decides whether it is fit to be compared: columns of schemas.STAGE_TABLE."""
        ...

    @property
    def values(self) -> Sequence[float]:
        """The objective in each round, on the study's basis."""
        ...


def judge(
    study: SearchedStudy, before: Side, after: Side, names: tuple[str, str] = ("before", "after")
) -> tuple[str, str, Interval | None]:
    """Verdict (one of `VERDICTS`), reason, and change in percent of `after` on `before` with its 95 % interval.

    By the rule by which a stage is decided, with `before` as the incumbent; of the study only its objective is read.
    `names` are what the reason calls the two.
    """
    unfit_before, unfit_after = unfit(study, before.row), unfit(study, after.row)
    was_ok, is_ok = (found is None or found[0] not in _FAILED for found in (unfit_before, unfit_after))
    if unfit_before and unfit_after and not was_ok and not is_ok:
        same = unfit_before[1] == unfit_after[1]
        return "still fails", unfit_after[1] if same else f"{unfit_after[1]} ({names[0]}: {unfit_before[1]})", None
    if unfit_after and not is_ok:
        return "new failure", unfit_after[1], None
    if unfit_before and not was_ok:
        return "fixed failure", f"{names[0]}: {unfit_before[1]}", None
    for name, found in zip(names, (unfit_before, unfit_after), strict=True):
        if found:
            return "not comparable", f"{name}: {found[0]}: {found[1]}", None
    if sum(before.values) <= 0:
        return "not comparable", f"{names[0]}: {study.objective.metric} was 0", None
    change = ratio_ci95(before.values, after.values)
    word, why = compare(study, *change)
    for name, row in zip(names, (before.row, after.row), strict=True):
        if row["validity"] == "suspect":
            why += f"; suspect {name}: {row['validity_note']}"
    return word if word in ("better", "worse") else "no difference", why, change


def comparison_row(row: Mapping[str, Any], values: Sequence[float]) -> dict[str, Any]:
    """The columns that `judge` reads, with the mean of `values` as the objective."""
    return {name: row[name] for name in ("outcome", "reason", "message", "success_rate")} | {
        "objective_value": sum(values) / len(values) if values else math.nan,
        "validity": row.get("validity"),
        "validity_note": row.get("validity_note"),
    }


def machine_of(manifest: Path) -> dict[str, str]:
    """What of a run's machine can change a measurement beside what its specification says; empty where nobody knows."""
    try:
        content = json.loads(manifest.read_bytes())
        devices = sorted({_device(device) for device in content["devices"]})
        return {"devices": "; ".join(devices)} | {name: str(content["machine"][name]) for name in _MACHINE}
    except (OSError, ValueError, LookupError, TypeError):
        return {}


def _device(device: Mapping[str, Any]) -> str:
    return f"{device['name']}, driver {device['driver']}" if device["driver"] else str(device["name"])


def machine_changes(before: Mapping[str, str], after: Mapping[str, str]) -> str | None:
    """How two machines differ, in what is known of both: `kernel 5.10.0 → 6.1.0`; None where they do not."""
    changed = [
        f"{name.replace('_', ' ')} {before[name]} → {after[name]}"
        for name in before.keys() & after.keys()
        if before[name] != after[name]
    ]
    return "; ".join(sorted(changed)) or None
