"""The proof: each pair of server starts as a line from baseline to winner, and the mean change with its interval."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import altair as alt
import pandas as pd

from servelab.core.figure_text import figure, mark, percent
from servelab.report.charts import (
    BLUE,
    GREY,
    INK,
    PLOT_WIDTH,
    AnyChart,
    axis_title,
    chart,
    finish,
    kind_channels,
    rows,
    side_text,
)
from servelab.results.compare_with_baseline import paired_labels
from servelab.study.project import StudySummary
from servelab.study.study import LAST_STAGES

_KINDS = {"Baseline": (GREY, "square"), "Optimized": (BLUE, "diamond"), "Promised": (BLUE, "diamond")}
_FILLS = (GREY, BLUE, "transparent")
_SIDES = list(_KINDS)


def proof_rows(
    study: StudySummary, comparison: pd.DataFrame, improvements: pd.DataFrame, promised_percent: float | None
) -> pd.DataFrame:
    """A row for each pair of each workload and one for their mean, which has an interval and what the search promised.

    `comparison` has the rows of the last stage's table, `improvements` those of the objective. Recorded logs have no
    pairs.
    """
    last = improvements[improvements["stage"].isin(LAST_STAGES)]
    change_of = {row["workload"]: row for row in last.to_dict("records")}
    found: list[dict[Any, Any]] = []
    for workload, title in study.workloads.items():
        sides = comparison[(comparison["workload"] == workload) & (comparison["outcome"] == "ok")]
        by_side = {row["candidate"]: row for row in sides.to_dict("records")}
        if by_side.keys() >= {"baseline", "winner"} and workload in change_of:
            promised = promised_percent if workload == study.objective.on else None
            of_workload = _workload_rows(by_side["baseline"], by_side["winner"], change_of[workload], promised)
            found += [row | {"title": title} for row in of_workload]
    return pd.DataFrame(found)


def _workload_rows(
    baseline: dict[Any, Any], winner: dict[Any, Any], change: dict[Any, Any], promised: float | None
) -> Iterator[dict[str, Any]]:
    shared = {name: change[name] for name in ("workload", "metric", "basis", "validity", "baseline_validity")}
    before, after = (dict(zip(row["start_labels"], row["start_values"], strict=True)) for row in (baseline, winner))
    for number, label in enumerate(paired_labels(baseline, winner), start=1):
        yield (
            shared
            | {"label": f"Pair {number}", "baseline": before[label], "value": after[label]}
            | {"change_percent": 100 * (after[label] / before[label] - 1)}
        )
    mean = change["baseline_value"]
    low, high = (mean * (1 + change[f"change_ci95_{end}_percent"] / 100) for end in ("low", "high"))
    yield (
        shared
        | {"label": "Mean", "baseline": mean, "value": change["value"], "low": low, "high": high}
        | {
            "change_percent": change["change_percent"],
            "promised": None if promised is None else mean * (1 + promised / 100),
        }
    )


@chart("proof", "proof", "answer", "From baseline to optimized, pair by pair; a bar is the mean's 95 % interval.")
def _proof(frame: pd.DataFrame) -> AnyChart | None:
    """A panel for each workload; None if baseline and winner were compared on none."""
    if frame.empty:
        return None
    sides = _SIDES if frame["promised"].notna().any() else _SIDES[:2]
    last = frame["workload"].iloc[-1]
    panels = [
        _panel(lines.reset_index(drop=True), sides, has_title=workload == last)
        for workload, lines in frame.groupby("workload", sort=False)
    ]
    return finish(alt.vconcat(*panels, spacing=14), [*frame["validity"], *frame["baseline_validity"]])


def _panel(lines: pd.DataFrame, sides: list[str], *, has_title: bool) -> AnyChart:
    first = lines.iloc[0]
    lines = lines.astype(dict.fromkeys(("baseline", "value", "low", "high", "promised"), float)).assign(row=lines.index)
    levels = first["baseline_validity"], first["validity"]
    signs = mark(levels[0]), mark(levels[1]), mark(*levels)
    lines["text"] = [
        f"{figure(before)}{signs[0]} → {figure(after)}{signs[1]} · {percent(change)}{signs[2]}"
        for before, after, change in zip(lines["baseline"], lines["value"], lines["change_percent"], strict=True)
    ]
    by_side = lines.rename(columns=dict(zip(("baseline", "value", "promised"), _SIDES, strict=True)))
    points = by_side.melt(["row", "label"], _SIDES, "side", "at").dropna(subset=["at"])
    points["name"] = [f"{row['label']}: {row['side']} {figure(row['at'])}" for row in points.to_dict("records")]
    title = axis_title(first["metric"], first["basis"]) if has_title else None
    x = alt.X("at:Q", title=title, scale=alt.Scale(zero=False, padding=10))
    y = rows(list(lines["label"]))
    colour, shape = kind_channels(_KINDS, sides, "side")
    fill = alt.Fill("side:N", scale=alt.Scale(domain=sides, range=_FILLS[: len(sides)]))
    base = alt.Chart(lines[["row", "baseline", "value", "low", "high", "text"]])
    layers = alt.layer(
        base.mark_rule(color=GREY).encode(x=alt.X("baseline:Q", title=title), x2="value:Q", y=y),
        base.transform_filter("datum.low !== null")
        .mark_errorbar(color=INK, ticks=alt.TickConfig(color=INK, height=8))
        .encode(x=alt.X("low:Q", title=title), x2="high:Q", y=y),
        alt.Chart(points)
        .mark_point(size=70, opacity=1, aria=True)
        .encode(x=x, y=y, color=colour, fill=fill, shape=shape, description="name:N"),
        side_text(base, y, "text"),
    )
    return layers.properties(width=PLOT_WIDTH, height=alt.Step(22), title=str(first["title"]))
