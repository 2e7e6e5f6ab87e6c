"""Aggregates all stages of a study: percentages against the baseline, per deployment, per accelerator and per node."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pyarrow as pa

from servelab import schemas
from servelab.metrics import METRICS
from servelab.objective import BASES, per_basis
from servelab.statistics import ratio_ci95
from servelab.study import COMPARISON


def improvements(table: pd.DataFrame, rounds: pd.DataFrame, metrics: pd.DataFrame) -> pa.Table:
    """Schema IMPROVEMENTS: every successful run against the baseline's run on the same workload, metric by metric.

    `table` holds the stage tables of all stages, `rounds` their rounds, `metrics` the metrics of their runs. The
    baseline's runs are those of the reserved stage `comparison` at position 0. Left out is a metric that is no merit,
    one that the baseline or the run has no value of, or 0 of the baseline's, and one that the clients of the two runs
    define differently.
    """
    values = _values(rounds)
    definitions = _definitions(metrics)
    baselines = table[(table["stage"] == COMPARISON) & (table["position"] == 0) & (table["outcome"] == "ok")]
    baseline_of = {row["workload"]: row for _, row in baselines.iterrows()}
    rows: list[dict[str, Any]] = []
    for _, row in table[table["outcome"] == "ok"].iterrows():
        baseline = baseline_of.get(row["workload"])
        if baseline is None or row["run_id"] == baseline["run_id"]:
            continue
        for metric in METRICS:
            keys = [(str(side["run_id"]), metric.tag) for side in (baseline, row)]
            pair = [values.get(key, []) for key in keys]
            same = definitions.get(keys[0]) == definitions.get(keys[1])
            if metric.higher_is_better is not None and same and all(pair) and sum(pair[0]) > 0:
                rows += [
                    _row(row, baseline, metric.tag, basis, *pair) for basis in (BASES if metric.is_rate else BASES[:1])
                ]
    return pa.Table.from_pylist(rows, schema=schemas.IMPROVEMENTS)


def _definitions(metrics: pd.DataFrame) -> dict[tuple[str, str], str]:
    """How a run's client defines a metric otherwise, for those that it does."""
    other = metrics[metrics["definition"].notna()]
    return dict(zip(zip(other["run_id"], other["metric"], strict=True), other["definition"], strict=True))


def _values(rounds: pd.DataFrame) -> dict[tuple[str, str], list[float]]:
    unique = rounds.drop_duplicates(["run_id", "metric", "round"]).sort_values("round")
    return {
        (str(run), str(metric)): list(group) for (run, metric), group in unique.groupby(["run_id", "metric"])["value"]
    }


def _row(
    row: pd.Series, baseline: pd.Series, metric: str, basis: Any, baseline_values: list[float], values: list[float]
) -> dict[str, Any]:
    factor, extrapolated = per_basis(basis, int(row["accelerators"]), int(row["accelerators_per_node"]))
    baseline_factor, baseline_extrapolated = per_basis(
        basis, int(baseline["accelerators"]), int(baseline["accelerators_per_node"])
    )
    scaled = [value * factor for value in values]
    baseline_scaled = [value * baseline_factor for value in baseline_values]
    change, low, high = ratio_ci95(baseline_scaled, scaled)
    return {
        "study": row["study"],
        "stage": row["stage"],
        "candidate": row["candidate"],
        "workload": row["workload"],
        "metric": metric,
        "basis": basis,
        "extrapolated": extrapolated or baseline_extrapolated,
        "factor": factor,
        "baseline_factor": baseline_factor,
        "baseline_run_id": baseline["run_id"],
        "run_id": row["run_id"],
        "baseline_validity": None if pd.isna(baseline["validity"]) else baseline["validity"],
        "validity": None if pd.isna(row["validity"]) else row["validity"],
        "baseline_value": sum(baseline_scaled) / len(baseline_scaled),
        "value": sum(scaled) / len(scaled),
        "higher_is_better": METRICS.get(metric).higher_is_better,
        "change_percent": change,
        "change_ci95_low_percent": low,
        "change_ci95_high_percent": high,
    }
