"""Aggregates all stages of a study: percentages against the baseline, per deployment, per accelerator and per node.

The column `evidence` says what a row rests on. Only a proof supports a claim: its figures come from pairs of fresh
server starts, which did not choose the winner.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

import pandas as pd
import pyarrow as pa

from servelab.metrics.definitions import METRICS
from servelab.metrics.objective import BASES, Basis, per_basis
from servelab.metrics.statistics import Interval, change_columns, change_of_pairs, ratio_interval
from servelab.metrics.tables import schemas
from servelab.metrics.timeline import LENGTH_DEPENDENT, apart
from servelab.results.checks import unequal_places
from servelab.study.plan import order_of
from servelab.study.study import AFTER_SEARCH, COMPARISON, CONFIRM, LAST_STAGES

PROOF, SEARCH, LOGS = "proof", "search", "logs"
"""Evidence of a change; see schemas.IMPROVEMENTS."""

Row = Mapping[Any, Any]
"""A row of schemas.STAGE_TABLE."""


class Pair(NamedTuple):
    """A pair of a proof on one workload: a server start of the baseline and one of the winner, measured in one job."""

    label: str
    baseline_run_id: str
    run_id: str
    baseline: float
    value: float
    apart: float
    """See `paired_labels`."""


class Starts:
    """The value of every metric on each server start: the mean of its rounds, as run."""

    def __init__(self, rounds: pd.DataFrame) -> None:
        """`rounds` has rows of schemas.ROUNDS."""
        unique = rounds.drop_duplicates(["run_id", "metric", "round"]).sort_values("round")
        self._rounds = {
            (str(run), str(metric)): [float(value) for value in group]
            for (run, metric), group in unique.groupby(["run_id", "metric"])["value"]
        }
        labels = rounds[["run_id", "start"]].drop_duplicates()
        self._label_of: dict[Any, Any] = dict(zip(labels["run_id"], labels["start"], strict=True))

    def of_logs(self, row: Row, metric: str) -> list[float]:
        """A metric in each log of a recorded candidate."""
        return self._rounds.get((row["run_id"], metric), [])

    def of_starts(self, row: Row, metric: str) -> list[float]:
        """A metric on each start of a candidate that gave it."""
        counted = {row["start_labels"][number] for number in counted_starts(row)}
        return [value for label, (_, value) in self._measured(row, metric).items() if label in counted]

    def pairs(self, baseline: Row, winner: Row, metric: str) -> list[Pair]:
        """The pairs of baseline and winner with this metric on both sides, in order.

        See `paired_labels` for which count.
        """
        ours, theirs = (self._measured(row, metric) for row in (winner, baseline))
        return [
            Pair(label, theirs[label][0], ours[label][0], theirs[label][1], ours[label][1], apart)
            for label, apart in paired_labels(baseline, winner).items()
            if label in ours and label in theirs
        ]

    def _measured(self, row: Row, metric: str) -> dict[str, tuple[str, float]]:
        """Label of each start that counts and gave a metric → its run, and the metric."""
        counted = set(row["start_labels"])
        return {
            self._label_of[run_id]: (run_id, fmean(values))
            for run_id in row["run_ids"]
            if (values := self._rounds.get((run_id, metric))) and self._label_of[run_id] in counted
        }


def counted_starts(row: Row) -> list[int]:
    """Positions of the starts that a row's figures rest on: the undisturbed ones, or all if there are none."""
    known = row.get("start_delays_percent")  # an older table has none
    delays = [0.0] * len(row["start_values"]) if known is None else known
    return [number for number, delay in enumerate(delays) if delay == 0] or list(range(len(delays)))


_ALIKE = math.log(1.25)
"""Sides whose speeds waiting may move further apart are no pair."""


def paired_labels(baseline: Row, winner: Row) -> dict[str, float]:
    """Labels of the starts of two rows of a proof that are pairs and count, by their objective, each with `apart`.

    A pair was measured in one job, one start after the other. Both were undisturbed, or only waited for CPUs, and about
    as long: `apart` is the logarithm by which the winner may be too slow as it waited longer; negative: the baseline.
    """
    sides = [
        dict(zip(row["start_labels"], zip(row["start_jobs"], row["start_delays_percent"], strict=True), strict=True))
        for row in (baseline, winner)
    ]
    found = {}
    for label, (job, delay) in sides[0].items():
        its_job, its_delay = sides[1].get(label, (None, math.nan))
        if job is not None and job == its_job and abs(far := apart(delay, its_delay)) <= _ALIKE:
            found[label] = far
    return found


class _Compared(NamedTuple):
    """A metric of both sides as run, and what the comparison rests on."""

    baseline: Sequence[float]
    values: Sequence[float]
    evidence: str
    orders: Sequence[int] = ()
    """Of pairs: see `plan.order_of`."""
    apart: float = 0.0
    """Their mean: see `paired_labels`."""


def improvements(table: pd.DataFrame, rounds: pd.DataFrame, metrics: pd.DataFrame) -> pa.Table:
    """Schema IMPROVEMENTS: every successful candidate against the baseline on the same workload, metric by metric.

    `table` holds the stage tables of all stages, `rounds` their rounds, `metrics` the metrics of their runs. A proof
    compares its baseline and winner in pairs, a recorded study the logs of both. A candidate of the search is compared
    with the baseline of the search by their means, without an interval. Left out is a metric that is no merit, one that
    either side has no value of, or 0 of the baseline's, one that the clients of the two define differently, and where
    answers end by themselves one that depends on their lengths.
    """
    starts, other = Starts(rounds), metrics[metrics["definition"].notna()]
    definitions = dict(zip(zip(other["run_id"], other["metric"], strict=True), other["definition"], strict=True))
    is_recorded = COMPARISON in set(table["stage"])
    rows: list[dict[str, Any]] = []
    for row, baseline in _with_baselines(table):
        for metric in METRICS:
            both = [*baseline["run_ids"], *row["run_ids"]]
            is_alike = len({definitions.get((run_id, metric.tag)) for run_id in both}) == 1
            if metric.higher_is_better is None or not is_alike:
                continue
            if pd.notna(row.get("natural_length_tokens")) and metric.tag in LENGTH_DEPENDENT:
                continue
            found = _compared(starts, row, baseline, metric.tag, is_recorded)
            if found.baseline and found.values and sum(found.baseline) > 0:
                bases = BASES if metric.is_rate else BASES[:1]
                rows += [_row(row, baseline, metric.tag, basis, found) for basis in bases]
    return pa.Table.from_pylist(rows, schema=schemas.IMPROVEMENTS)


def _with_baselines(table: pd.DataFrame) -> Iterator[tuple[Row, Row]]:
    """Each successful row with the baseline's on its workload: the last stage's for its winner, else the search's."""
    proved: dict[str, Row] = {}
    searched: dict[str, Row] = {}
    rows: Sequence[Row] = table.to_dict("records")
    for row in rows:
        if row["position"] == 0:
            if row["stage"] in LAST_STAGES:
                proved[row["workload"]] = row
            elif row["stage"] not in AFTER_SEARCH:
                searched.setdefault(row["workload"], row)  # the first stage starts from the baseline
    if COMPARISON in set(table["stage"]):
        searched = proved
    for row in rows:
        is_last = row["stage"] in LAST_STAGES
        if row["outcome"] != "ok" or (row["stage"] in AFTER_SEARCH and not is_last):
            continue
        baseline = (proved if is_last else searched).get(row["workload"])
        if baseline is not None and baseline["outcome"] == "ok" and row["run_id"] != baseline["run_id"]:
            yield row, baseline


def _compared(starts: Starts, row: Row, baseline: Row, metric: str, is_recorded: bool) -> _Compared:
    if is_recorded:
        return _Compared(starts.of_logs(baseline, metric), starts.of_logs(row, metric), LOGS)
    if row["stage"] == CONFIRM:
        pairs = starts.pairs(baseline, row, metric)
        sides = [pair.baseline for pair in pairs], [pair.value for pair in pairs]
        apart = fmean(pair.apart for pair in pairs) if pairs else 0.0
        return _Compared(*sides, PROOF, [order_of(pair.label) for pair in pairs], apart)
    return _Compared(starts.of_starts(baseline, metric), starts.of_starts(row, metric), SEARCH)


def _change(baseline: Sequence[float], values: Sequence[float], found: _Compared) -> Interval:
    if found.evidence == LOGS:
        return ratio_interval(baseline, values)
    if found.evidence == PROOF and min(*baseline, *values) > 0:
        ratios = [math.log(value / base) for base, value in zip(baseline, values, strict=True)]
        return change_of_pairs(ratios, found.orders, found.apart)
    return Interval(100 * (fmean(values) / fmean(baseline) - 1), None, None)


def _row(row: Row, baseline: Row, metric: str, basis: Basis, found: _Compared) -> dict[str, Any]:
    (factor, extrapolated), (baseline_factor, baseline_extrapolated) = (
        per_basis(basis, int(side["accelerators"]), int(side["accelerators_per_node"])) for side in (row, baseline)
    )
    scaled = [value * factor for value in found.values]
    baseline_scaled = [value * baseline_factor for value in found.baseline]
    return {
        **{name: row[name] for name in ("study", "stage", "candidate", "workload")},
        "metric": metric,
        "basis": basis,
        "extrapolated": extrapolated or baseline_extrapolated,
        "factor": factor,
        "baseline_factor": baseline_factor,
        "baseline_run_id": baseline["run_id"],
        "run_id": row["run_id"],
        "baseline_validity": None if pd.isna(baseline["validity"]) else baseline["validity"],
        "validity": None if pd.isna(row["validity"]) else row["validity"],
        "baseline_value": fmean(baseline_scaled),
        "value": fmean(scaled),
        "higher_is_better": METRICS.get(metric).higher_is_better,
        "evidence": found.evidence,
        "starts": len(scaled),
        "unequal_places": unequal_places([baseline, row]),
        **change_columns(_change(baseline_scaled, scaled, found)),
    }
