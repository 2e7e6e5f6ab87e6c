"""The curves of a study: what each configuration gave at each point, from the tables of its stages."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pyarrow as pa

from servelab.metrics.tables.curve_schema import CURVES
from servelab.study.study import LAST_STAGES
from servelab.study.summary import StudySummary


def curves_table(study: StudySummary, stages: pd.DataFrame, points: pd.DataFrame) -> pa.Table:
    """Schema CURVES: a row for each configuration, curve and point; a curve's points are in order.

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
            name: names[name] for name in ("stage", "position", "candidate")
        }
    placed = [row | place[row["workload"]] for row in found.values()]
    placed.sort(
        key=lambda row: (list(study.curves).index(row["curve"]), order[row["stage"]], row["position"], row["level"])
    )
    return pa.Table.from_pylist(
        [
            {name: _value(row[name]) for name in CURVES.names if name in row}
            | {"decides": row["workload"] == study.objective.on}
            for row in placed
        ],
        schema=CURVES,
    )


def _value(value: Any) -> Any:
    if isinstance(value, str) or hasattr(value, "__len__"):
        return list(value) if not isinstance(value, str) else value
    return None if pd.isna(value) else value
