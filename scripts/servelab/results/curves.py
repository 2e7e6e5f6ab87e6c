"""The curves of a study: what each configuration gave at each point, from the tables of its stages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from servelab.metrics.tables import schemas
from servelab.metrics.tables.io import read_table
from servelab.study.project import StudySummary
from servelab.study.study import LAST_STAGES


def curves_table(study: StudySummary, stages: pd.DataFrame, points: pd.DataFrame) -> pa.Table:
    """Rows of `schemas.CURVES`, one for each configuration, curve and point; a curve's points are in order.

    `stages` are the tables of all stages, `points` those of the points that decide nothing, both with the columns of
    schemas.STAGE_TABLE. A configuration that several stages measured on the same starts is named by the first, or by
    the last one, of baseline and winner.
    """
    place = {
        name: {"curve": curve, "load": outline.of, "level": level}
        for curve, outline in study.curves.items()
        for name, level in outline.points.items()
    }
    order = {stage: number for number, stage in enumerate(dict.fromkeys(stages["stage"]))}
    rows: list[dict[str, Any]] = pd.concat([stages, points]).to_dict("records")  # type: ignore[assignment]
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for row in sorted(rows, key=lambda row: order[row["stage"]]):
        if row["workload"] not in place or pd.isna(row["run_id"]):
            continue
        known = found.setdefault((row["workload"], row["run_id"]), row)
        # an incumbent may have more starts than it had as a candidate; without a proof, the last stage shares its runs
        names = row if row["stage"] in LAST_STAGES else known
        figures = row if row["starts"] > known["starts"] else known
        found[row["workload"], row["run_id"]] = figures | {
            each: names[each] for each in ("stage", "position", "candidate")
        }
    placed = [row | place[row["workload"]] for row in found.values()]
    placed.sort(
        key=lambda row: (list(study.curves).index(row["curve"]), order[row["stage"]], row["position"], row["level"])
    )
    return pa.Table.from_pylist(
        [
            {name: _value(row[name]) for name in schemas.CURVES.names if name in row}
            | {"decides": row["workload"] == study.objective.on}
            for row in placed
        ],
        schema=schemas.CURVES,
    )


def _value(value: Any) -> Any:
    if isinstance(value, str) or hasattr(value, "__len__"):
        return list(value) if not isinstance(value, str) else value
    return None if pd.isna(value) else value


MOST_POINTS = 60
"""Points of one telemetry metric in a round."""

DRAWN = (
    ("nvml", "gpu_utilization_percent"),
    ("npu-smi", "npu_utilization_percent"),
    ("nvml", "power_w"),
    ("npu-smi", "power_w"),
    ("nvml", "memory_used_bytes"),
    ("npu-smi", "memory_used_bytes"),
    ("psutil", "own_cpu_percent"),
    ("psutil", "server_rss_bytes"),
    ("server", "kv_cache_usage_fraction"),
    ("server", "requests_running"),
    ("server", "requests_waiting"),
    ("server", "preemptions_total"),
)
"""Source and metric of the telemetry that the report reads, in the charts' order."""


def device_series(table: pd.DataFrame, runs_folder: Path) -> pa.Table:
    """Schema DEVICE_SERIES: telemetry of the successful runs in `table` (rows of schemas.STAGE_TABLE).

    A telemetry file that cannot be read is a `ServelabError` that names its run; it may be missing.
    """
    series: list[dict[str, Any]] = []
    measured = table[table["outcome"] == "ok"].drop_duplicates(["run_id", "workload"])
    for row in measured.to_dict("records"):
        names = {name: row[name] for name in ("study", "run_id", "workload")}
        samples = runs_folder / row["run_id"] / "telemetry.parquet"
        if samples.exists():
            series += [names | entry for entry in condensed(read_table(samples, schemas.TELEMETRY))]
    return pa.Table.from_pylist(series, schema=schemas.DEVICE_SERIES)


def condensed(telemetry: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Means over a run's devices in equally long pieces of each round, from the start of its load."""
    loaded = telemetry[telemetry["time_s"] >= 0]
    for (source, metric), rows in loaded.groupby(["source", "metric"], sort=False):
        if (source, metric) not in DRAWN:
            continue
        for number in sorted(rows["round"].unique()):
            of_round = rows[rows["round"] == number]
            last = float(of_round["time_s"].max())
            piece = (of_round["time_s"] / max(last, 1e-9) * MOST_POINTS).astype(int).clip(upper=MOST_POINTS - 1)
            means = of_round.groupby(piece)[["time_s", "value"]].mean()
            for time_s, value in means.itertuples(index=False):
                yield {"round": int(number), "source": source, "metric": metric, "time_s": time_s, "value": value}
