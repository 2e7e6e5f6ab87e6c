"""Requests in flight and output tokens/s over the time of each round, for baseline and winner on every workload."""

from __future__ import annotations

import altair as alt
import pandas as pd

from servelab.report.charts import (
    CHARTS,
    SIDE_OF,
    AnyChart,
    Chart,
    finish,
    nothing_to_show,
    side_colour,
)

FIGURES = {"requests_in_flight": "Requests in flight", "output_tokens_per_s": "Output tokens/s"}
MOST_ROUNDS = 3
MOST_PIECES = 60
"""Most points of a line."""
WIDTH, HEIGHT = 158, 96


def build(frame: pd.DataFrame) -> AnyChart:
    """One row per workload, one panel per figure, one line per round; of many rounds only the first are drawn."""
    frame = frame[frame["round"] < MOST_ROUNDS]
    if frame.empty:
        return nothing_to_show("Nothing was recorded over time.")
    lines = pd.concat(
        [_line(rows) for _, rows in frame.groupby(["workload", "candidate", "round"], sort=False)], ignore_index=True
    )
    rows = [
        alt.hconcat(
            *(_panel(of_workload, figure, title) for figure, title in FIGURES.items()),
            spacing=14,
            title=alt.Title(str(workload), offset=6),
        )
        for workload, of_workload in lines.groupby("workload", sort=False)
    ]
    return finish(alt.vconcat(*rows, spacing=18), frame["validity"])


def _line(rows: pd.DataFrame) -> pd.DataFrame:
    """One round of one run, with buckets joined to at most `MOST_PIECES`."""
    rows = rows.sort_values("start_s")
    piece = pd.Series(range(len(rows)), index=rows.index) // -(-len(rows) // MOST_PIECES)
    grouped = rows.groupby(piece)
    seconds = grouped["seconds"].sum()
    return pd.DataFrame(
        {
            "workload": rows["workload"].iloc[0],
            "side": SIDE_OF[rows["candidate"].iloc[0]],
            "round": int(rows["round"].iloc[0]),
            "time_s": grouped["start_s"].min() + seconds / 2,
            "requests_in_flight": grouped["requests_in_flight"].mean(),
            "output_tokens_per_s": grouped["output_tokens"].sum() / seconds,
        }
    )


def _panel(lines: pd.DataFrame, figure: str, title: str) -> AnyChart:
    chart: alt.Chart = (
        alt.Chart(lines[["side", "round", "time_s", figure]].round(3))
        .mark_line(strokeWidth=1.5, opacity=0.8)
        .encode(
            x=alt.X("time_s:Q", title="Time (s)", axis=alt.Axis(grid=False, tickCount=3)),
            y=alt.Y(f"{figure}:Q", title=title, axis=alt.Axis(tickCount=3, format=",~r")),
            color=side_colour(),
            detail="round:N",
        )
    )
    return chart.properties(width=WIDTH, height=HEIGHT)


CHARTS.register(
    "load_over_time",
    Chart(
        name="load_over_time",
        reads="timeline",
        section="time",
        caption=f"Requests in flight and output tokens/s over the time of a round; one line for each of the first "
        f"{MOST_ROUNDS} rounds.",
        columns=(
            "candidate",
            "validity",
            "workload",
            "round",
            "start_s",
            "seconds",
            "requests_in_flight",
            "output_tokens",
        ),
        build=build,
    ),
)
