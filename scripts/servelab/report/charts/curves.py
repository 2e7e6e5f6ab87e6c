"""Curves of load: throughput and latency of every configuration, and a device's throughput against each user's rate."""

from __future__ import annotations

from collections.abc import Mapping

import altair as alt
import pandas as pd

from servelab.core.figure_text import figure, mark
from servelab.report.charts import BLUE, GREY, INK, SKY, AnyChart, chart, finish, kind_channels
from servelab.study.project import StudySummary
from servelab.study.study import LAST_STAGES

KINDS = {
    "Baseline": (GREY, "square"),
    "Winner": (BLUE, "diamond"),
    "Other": (SKY, "circle"),
}
"""Colour and shape of a configuration's points."""
SHOWN = {
    "total_tokens_per_s": "Total tokens/s, as run",
    "ttft_ms_mean": "Mean TTFT (ms)",
    "ttft_ms_p99": "P99 TTFT (ms)",
    "tpot_ms_mean": "Mean TPOT (ms)",
    "tpot_ms_p99": "P99 TPOT (ms)",
}
LIMITED = {f"{metric}_{of}": (metric, of) for metric in ("ttft_ms", "tpot_ms") for of in ("mean", "p99")}
"""Column of a latency → its metric and statistic, to find its limit."""
LOADS = {"max_concurrency": "most requests in flight", "request_rate": "requests/s"}
AT = {"max_concurrency": "at most {:g} in flight", "request_rate": "{:g} requests/s"}
"""Quantity that a curve varies → format of a point in words."""
LIMIT_COLUMNS = tuple(f"{kind}_{column}" for kind in ("slo", "limit") for column in LIMITED)
WIDTH, HEIGHT = 340, 130
USER, DEVICE = "tokens_per_s_per_user", "tokens_per_s_per_accelerator"
_NAMES = {"baseline": "Baseline", "winner": "Winner"}
_INTERVAL = ("total_tokens_per_s_ci95_low", "total_tokens_per_s_ci95_high")


@chart("curves", "curves", "loads", "By load; vertical lines are 95 % intervals, dashed ones limits on latency.")
def _curves(frame: pd.DataFrame) -> AnyChart | None:
    """A panel for each curve and figure, with the load to the right; a vertical line is a 95 % interval over starts.

    A dashed line is a limit, from the columns of `with_limits`. A 99th percentile without one is not drawn, nor is a
    point without figures, because it failed or because a lower rate saturated the server.
    """
    rows = _points(frame[frame["outcome"] == "ok"])
    panels: list[AnyChart] = []
    for curve, of_curve in rows.groupby("curve", sort=False):
        for column, title in SHOWN.items():
            limits = _limits(of_curve, column)
            drawn = of_curve[of_curve[column].notna()]
            if drawn.empty or (column.endswith("p99") and not limits):
                continue
            low, high = _INTERVAL if column == "total_tokens_per_s" else (None, None)
            drawn = drawn.assign(
                x=drawn["level"], y=drawn[column], low=drawn[low] if low else None, high=drawn[high] if high else None
            ).astype({"low": float, "high": float})
            drawn["name"] = point_names(drawn, {column: title})
            x = alt.X(
                "x:Q",
                title=f"{curve}: {LOADS[drawn['load'].iloc[0]]}",
                scale=alt.Scale(type="log", nice=False, padding=12),
                axis=alt.Axis(values=sorted(set(drawn["level"])), format="~g"),
            )
            y = alt.Y("y:Q", title=title, scale=alt.Scale(padding=8))
            layers = _layers(drawn.assign(label=drawn["mark"]), x, y, f"points{len(panels)}")
            whole = alt.layer(layers, *_limit_lines(limits, title)) if limits else layers
            panels.append(whole.properties(width=WIDTH, height=HEIGHT))
    return finish(alt.vconcat(*panels, spacing=16), rows["validity"]) if panels else None


@chart("users", "curves", "loads", "Each user's speed against the device's, load by load: up and right is better.")
def _users(frame: pd.DataFrame) -> AnyChart | None:
    """A panel for each curve; a line joins the points of a configuration in the order of their loads.

    A user's tokens/s are 1000 / mean TPOT in ms. A point without figures or without a TPOT is not drawn.
    """
    rows = _points(frame[(frame["outcome"] == "ok") & (frame["tpot_ms_mean"] > 0)])
    if rows.empty:
        return None
    rows = rows.assign(**{USER: 1000 / rows["tpot_ms_mean"]})
    for column, name in ((DEVICE, ""), ("low", "_ci95_low"), ("high", "_ci95_high")):
        rows[column] = rows[f"total_tokens_per_s{name}"].astype(float) / rows["accelerators"]
    rows["name"] = point_names(rows, {USER: "tokens/s per user", DEVICE: "total tokens/s per accelerator"})
    loads = ["" if kind == "Other" else f"{level:g}" for kind, level in zip(rows["kind"], rows["level"], strict=True)]
    rows = rows.assign(x=rows[USER], y=rows[DEVICE], label=[*map("".join, zip(loads, rows["mark"], strict=True))])
    panels: list[AnyChart] = []
    for curve, of_curve in rows.groupby("curve", sort=False):
        x = alt.X("x:Q", title=f"{curve}: output tokens/s per user", scale=alt.Scale(zero=False, padding=12))
        y = alt.Y("y:Q", title=["Total tokens/s", "per accelerator"], scale=alt.Scale(padding=10))
        layers = _layers(of_curve, x, y, f"points{len(panels)}")
        panels.append(layers.properties(width=WIDTH, height=HEIGHT))
    return finish(alt.vconcat(*panels, spacing=16), rows["validity"])


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


def _points(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows with `kind`, the key of `KINDS`, the `line` that joins a configuration's points, and the `mark`."""
    kinds = [
        _NAMES.get(candidate, "Other") if stage in LAST_STAGES else "Other"
        for candidate, stage in zip(rows["candidate"], rows["stage"], strict=True)
    ]
    marks = [mark(validity) for validity in rows["validity"]]
    return rows.assign(kind=kinds, line=rows["stage"] + ": " + rows["candidate"], mark=marks).reset_index(drop=True)


def point_names(rows: pd.DataFrame, figures: Mapping[str, str]) -> list[str]:
    """Tooltip of each row's mark: configuration, load and figures; `figures` is column → words."""
    return [
        f"{row['stage']}: {row['candidate']}, {AT[row['load']].format(row['level'])}: "
        + ", ".join(f"{figure(row[column])} {words}" for column, words in figures.items())
        for row in rows.to_dict("records")
    ]


def _layers(rows: pd.DataFrame, x: alt.X, y: alt.Y, name: str) -> alt.LayerChart | alt.FacetChart:
    """Lines, intervals, points and labels; a configuration that is pointed at stands out.

    `rows` has `x`, `y`, `low`, `high` and `label`. The baseline is mostly the lower line: its labels are below it.
    """
    rows = rows[["x", "y", "low", "high", "kind", "line", "level", "name", "label"]]
    colour, shape = kind_channels(KINDS, rows["kind"])
    pointed = alt.selection_point(
        name=f"configuration_of_{name}", fields=["line"], on="pointerover", clear="pointerout"
    )
    opacity = alt.condition(pointed, alt.value(1.0), alt.value(0.2))
    is_low = rows["kind"] == "Baseline"
    return alt.layer(
        alt.Chart(rows)
        .mark_line(strokeWidth=1.5)
        .encode(x=x, y=y, color=colour, detail="line:N", order="level:Q", opacity=opacity),
        alt.Chart(rows.dropna(subset=["low", "high"])).mark_rule(color=INK).encode(x=x, y=alt.Y("low:Q"), y2="high:Q"),
        alt.Chart(rows, name=name)
        .mark_point(filled=True, size=60, aria=True)
        .encode(x=x, y=y, color=colour, shape=shape, description="name:N", opacity=opacity)
        .add_params(pointed),
        *(
            alt.Chart(labelled).mark_text(dy=dy, color=INK, fontSize=12).encode(x=x, y=y, text="label:N")
            for dy, labelled in (
                (-11, rows[(rows["label"] != "") & ~is_low]),
                (14, rows[(rows["label"] != "") & is_low]),
            )
        ),
    )


def _limit_lines(limits: Mapping[str, float], title: str) -> list[alt.Chart]:
    """A dashed line for each limit, and its text above it, at the left."""
    base = alt.Chart(pd.DataFrame({"limit": list(limits.values()), "text": list(limits)}))
    y = alt.Y("limit:Q", title=title)
    text = base.mark_text(align="left", dy=-7, color=INK, fontSize=12)
    return [
        base.mark_rule(color=INK, strokeDash=[5, 4]).encode(y=y),
        text.encode(x=alt.value(4), y=y, text="text:N"),
    ]
