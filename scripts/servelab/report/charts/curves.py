"""Throughput and latency against load, with the limits on latency: every configuration on every curve."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import altair as alt
import pandas as pd

from servelab.core.yaml_file import figure, mark
from servelab.report.charts import BLUE, CHARTS, GREY, INK, VERMILLION, AnyChart, Chart, finish, kind_channels
from servelab.study.project import StudySummary
from servelab.study.study import LAST_STAGES

KINDS = {
    "Baseline": (VERMILLION, "square"),
    "Winner": (BLUE, "diamond"),
    "Other": (GREY, "circle"),
}
"""Colour and shape of a configuration's points."""
SHOWN = {
    "total_tokens_per_s": "Total tokens/s, as run",
    "ttft_ms_mean": "Mean TTFT (ms)",
    "ttft_ms_p99": "P99 TTFT (ms)",
    "tpot_ms_mean": "Mean TPOT (ms)",
    "tpot_ms_p99": "P99 TPOT (ms)",
}
LIMITED = {
    "ttft_ms_mean": ("ttft_ms", "mean"),
    "ttft_ms_p99": ("ttft_ms", "p99"),
    "tpot_ms_mean": ("tpot_ms", "mean"),
    "tpot_ms_p99": ("tpot_ms", "p99"),
}
"""Column of a latency → its metric and statistic, to find its limit."""
_ONLY_WITH_LIMIT = frozenset({"ttft_ms_p99", "tpot_ms_p99"})
"""Drawn on a curve that limits it."""
LOADS = {"max_concurrency": "most requests in flight", "request_rate": "requests/s"}
AT = {"max_concurrency": "at most {:g} in flight", "request_rate": "{:g} requests/s"}
"""Quantity that a curve varies → format of a point in words."""
LIMIT_COLUMNS = tuple(f"{kind}_{column}" for kind in ("slo", "limit") for column in LIMITED)
WIDTH, HEIGHT = 340, 130
_NAMES = {"baseline": "Baseline", "winner": "Winner"}
_INTERVAL = ("total_tokens_per_s_ci95_low", "total_tokens_per_s_ci95_high")


def build(frame: pd.DataFrame) -> AnyChart | None:
    """A panel for each curve and figure, with the load to the right; a vertical line is a 95 % interval over starts.

    A dashed line is a limit, from the columns of `with_limits`. A 99th percentile without one is not drawn, nor is a
    point without figures, because it failed or because a lower rate saturated the server.
    """
    measured = frame[frame["outcome"] == "ok"].reset_index(drop=True)
    if measured.empty:
        return None
    measured["kind"] = kind_of(measured)
    measured["line"] = measured["stage"] + ": " + measured["candidate"]
    measured["mark"] = [mark(validity) for validity in measured["validity"]]
    shown = [
        (rows, column, f"{curve}: {LOADS[rows['load'].iloc[0]]}")
        for curve, rows in measured.groupby("curve", sort=False)
        for column in SHOWN
        if rows[column].notna().any() and (column not in _ONLY_WITH_LIMIT or _limits(rows, column))
    ]
    panels = [_panel(*each, f"points{place}") for place, each in enumerate(shown)]
    return finish(alt.vconcat(*panels, spacing=16), measured["validity"])


def with_limits(curves: pd.DataFrame, study: StudySummary) -> pd.DataFrame:
    """Rows of schemas.CURVES with the limits of their latencies, null where there is none.

    `slo_<column>` is the limit of each request, beside its 99th percentile; `limit_<column>` that of the constraints of
    the objective, on the curve that decides.
    """
    deciding = set(curves.loc[curves["decides"].astype(bool), "curve"])
    slos = {workload: study.slos_of(workload) for workload in curves["workload"].unique()}
    found = curves.copy()
    for column, (metric, statistic) in LIMITED.items():
        constraint = study.objective.constraints.get(metric, {}).get(statistic)  # type: ignore[call-overload]
        found[f"limit_{column}"] = [constraint if curve in deciding else None for curve in curves["curve"]]
        of_request = statistic == "p99"
        found[f"slo_{column}"] = [slos[name].get(metric) if of_request else None for name in curves["workload"]]
    return found.astype(dict.fromkeys(LIMIT_COLUMNS, float))


def _limits(rows: pd.DataFrame, column: str) -> dict[str, float]:
    """Text at a latency limit of a curve → its position."""
    if column not in LIMITED:
        return {}
    words = {f"slo_{column}": "SLO of a request", f"limit_{column}": "limit"}
    found = {text: rows[name].dropna() for name, text in words.items()}
    return {f"{text}: {figure(each.iloc[0])} ms": float(each.iloc[0]) for text, each in found.items() if len(each)}


def kind_of(rows: pd.DataFrame) -> list[str]:
    """The key of `KINDS` of each row of schemas.CURVES."""
    return [
        _NAMES.get(candidate, "Other") if stage in LAST_STAGES else "Other"
        for candidate, stage in zip(rows["candidate"], rows["stage"], strict=True)
    ]


def point_names(rows: pd.DataFrame, figures: Mapping[str, str]) -> list[str]:
    """Tooltip of each row's mark: configuration, load and figures; `figures` is column → words."""
    return [
        f"{row['stage']}: {row['candidate']}, {AT[row['load']].format(row['level'])}: "
        + ", ".join(f"{figure(row[column])} {words}" for column, words in figures.items())
        for row in rows.to_dict("records")
    ]


def standing_out(points: str) -> tuple[alt.Parameter, Any]:
    """A configuration that is pointed at, and the opacity of its marks and of the others'."""
    pointed = alt.selection_point(
        name=f"configuration_of_{points}", fields=["line"], on="pointerover", clear="pointerout"
    )
    return pointed, alt.condition(pointed, alt.value(1.0), alt.value(0.2))


def _panel(rows: pd.DataFrame, column: str, title: str, name: str) -> AnyChart:
    rows = rows[rows[column].notna()].assign(value=rows[column], low=None, high=None)
    if column == "total_tokens_per_s":
        rows = rows.assign(low=rows[_INTERVAL[0]], high=rows[_INTERVAL[1]])
    rows["name"] = point_names(rows, {"value": SHOWN[column]})
    limits = [{"limit": value, "text": text} for text, value in _limits(rows, column).items()]
    rows = rows.astype({"low": float, "high": float})[["level", "value", "low", "high", "kind", "line", "mark", "name"]]
    axis = alt.Axis(values=sorted(set(rows["level"])), format="~g")
    x = alt.X("level:Q", title=title, scale=alt.Scale(type="log", nice=False, padding=12), axis=axis)
    y = alt.Y("value:Q", title=SHOWN[column], scale=alt.Scale(padding=8))
    colour, shape = kind_channels(KINDS)
    pointed, opacity = standing_out(name)
    layers = alt.layer(
        alt.Chart(rows).mark_line(strokeWidth=1.5).encode(x=x, y=y, color=colour, detail="line:N", opacity=opacity),
        alt.Chart(rows.dropna(subset=["low", "high"]))
        .mark_rule(color=INK)
        .encode(x=x, y=alt.Y("low:Q", title=SHOWN[column]), y2="high:Q"),
        alt.Chart(rows, name=name)
        .mark_point(filled=True, size=60, aria=True)
        .encode(x=x, y=y, color=colour, shape=shape, description="name:N", opacity=opacity)
        .add_params(pointed),
        alt.Chart(rows[rows["mark"] != ""]).mark_text(dy=-11, color=INK, fontSize=13).encode(x=x, y=y, text="mark:N"),
    )
    if limits:
        layers = alt.layer(layers, *_limit_lines(pd.DataFrame(limits), SHOWN[column]))
    return layers.properties(width=WIDTH, height=HEIGHT)


def _limit_lines(limits: pd.DataFrame, title: str) -> list[alt.Chart]:
    """A dashed line for each limit, and its text above it, at the left."""
    base = alt.Chart(limits)
    y = alt.Y("limit:Q", title=title)
    text = base.mark_text(align="left", dy=-7, color=INK, fontSize=12)
    return [
        base.mark_rule(color=INK, strokeDash=[5, 4]).encode(y=y),
        text.encode(x=alt.value(4), y=y, text="text:N"),
    ]


CHARTS.register(
    "curves",
    Chart(
        name="curves",
        reads="curves",
        section="loads",
        caption="By load; vertical lines are 95 % intervals, dashed ones limits on latency.",
        columns=(
            *("curve", "load", "level", "stage", "candidate", "outcome", "validity"),
            *(*SHOWN, *_INTERVAL, *LIMIT_COLUMNS),
        ),
        build=build,
    ),
)
