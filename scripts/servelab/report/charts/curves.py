"""Throughput and latency against load: every configuration on every curve, baseline and winner in front."""

from __future__ import annotations

from collections.abc import Mapping

import altair as alt
import pandas as pd

from servelab.core.number_text import figure, mark
from servelab.report.charts import BLUE, CHARTS, GREY, INK, VERMILLION, AnyChart, Chart, finish, nothing_to_show
from servelab.study.study import CONFIRM

KINDS = {
    "Baseline": (VERMILLION, "square"),
    "Winner": (BLUE, "diamond"),
    "Other": (GREY, "circle"),
}
"""Colour and shape of a configuration's points."""
SHOWN = {
    "total_tokens_per_s": "Total tokens/s, as run",
    "ttft_ms_mean": "Mean TTFT (ms)",
    "tpot_ms_mean": "Mean TPOT (ms)",
}
LOADS = {"max_concurrency": "most requests in flight", "request_rate": "requests/s"}
AT = {"max_concurrency": "at most {:g} in flight", "request_rate": "{:g} requests/s"}
"""What the points of a curve differ in → a point in words."""
WIDTH, HEIGHT = 340, 130
_NAMES = {"baseline": "Baseline", "winner": "Winner"}
_INTERVAL = ("total_tokens_per_s_ci95_low", "total_tokens_per_s_ci95_high")


def build(frame: pd.DataFrame) -> AnyChart:
    """A panel for each curve and figure, with the load to the right; a vertical line is a 95 % interval over starts.

    A point without figures, because it failed or because a lower rate saturated the server, is not drawn.
    """
    measured = frame[frame["outcome"] == "ok"].reset_index(drop=True)
    if measured.empty:
        return nothing_to_show("No point of a curve has figures.")
    measured["kind"] = kind_of(measured)
    measured["line"] = measured["stage"] + ": " + measured["candidate"]
    measured["mark"] = [mark(validity) for validity in measured["validity"]]
    panels = [
        _panel(rows, column, f"{curve}: {LOADS[rows['load'].iloc[0]]}")
        for curve, rows in measured.groupby("curve", sort=False)
        for column in SHOWN
        if rows[column].notna().any()
    ]
    return finish(alt.vconcat(*panels, spacing=16), measured["validity"])


def kind_of(rows: pd.DataFrame) -> list[str]:
    """The key of `KINDS` of each row of schemas.CURVES."""
    return [
        _NAMES.get(candidate, "Other") if stage == CONFIRM else "Other"
        for candidate, stage in zip(rows["candidate"], rows["stage"], strict=True)
    ]


def point_names(rows: pd.DataFrame, figures: Mapping[str, str]) -> list[str]:
    """What a reader sees who points at a mark: configuration, load and the figures, by column → words."""
    return [
        f"{row['stage']}: {row['candidate']}, {AT[row['load']].format(row['level'])}: "
        + ", ".join(f"{figure(row[column])} {words}" for column, words in figures.items())
        for row in rows.to_dict("records")
    ]


def _panel(rows: pd.DataFrame, column: str, title: str) -> AnyChart:
    rows = rows[rows[column].notna()].assign(value=rows[column], low=None, high=None)
    if column == "total_tokens_per_s":
        rows = rows.assign(low=rows[_INTERVAL[0]], high=rows[_INTERVAL[1]])
    rows["name"] = point_names(rows, {"value": SHOWN[column]})
    rows = rows.astype({"low": float, "high": float})[["level", "value", "low", "high", "kind", "line", "mark", "name"]]
    x = alt.X("level:Q", title=title, scale=alt.Scale(type="log", padding=12))
    y = alt.Y("value:Q", title=SHOWN[column], scale=alt.Scale(padding=8))
    colours, shapes = zip(*KINDS.values(), strict=True)
    colour = alt.Color("kind:N", scale=alt.Scale(domain=list(KINDS), range=list(colours)))
    shape = alt.Shape("kind:N", scale=alt.Scale(domain=list(KINDS), range=list(shapes)))
    layers = alt.layer(
        alt.Chart(rows).mark_line(strokeWidth=1.5).encode(x=x, y=y, color=colour, detail="line:N"),
        alt.Chart(rows.dropna(subset=["low", "high"]))
        .mark_rule(color=INK)
        .encode(x=x, y=alt.Y("low:Q", title=SHOWN[column]), y2="high:Q"),
        alt.Chart(rows)
        .mark_point(filled=True, size=60, opacity=1, aria=True)
        .encode(x=x, y=y, color=colour, shape=shape, description="name:N"),
        alt.Chart(rows[rows["mark"] != ""]).mark_text(dy=-11, color=INK, fontSize=13).encode(x=x, y=y, text="mark:N"),
    )
    return layers.properties(width=WIDTH, height=HEIGHT)


CHARTS.register(
    "curves",
    Chart(
        name="curves",
        reads="curves",
        section="search",
        caption="Throughput and latency against load; a line is one configuration, a vertical line a 95 % interval "
        "over server starts. Baseline and winner are those of the proof. Point at a mark to read its name and figure.",
        columns=(
            "curve",
            "load",
            "level",
            "stage",
            "candidate",
            "outcome",
            "validity",
            *SHOWN,
            *_INTERVAL,
        ),
        build=build,
    ),
)
