"""Each candidate of a stage: its objective with the 95 % interval; incumbent, winner and failures are marked."""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd

from servelab.core.yaml_file import figure, mark
from servelab.metrics.definitions import METRICS
from servelab.report.charts import (
    BLUE,
    CHARTS,
    EXTRAPOLATED,
    GREY,
    INK,
    MOST_ROWS,
    PLOT_WIDTH,
    SKY,
    VERMILLION,
    AnyChart,
    Chart,
    axis_title,
    finish,
    is_extrapolated,
    nothing_to_show,
    rows,
    side_text,
)

ROLES = {"Winner": BLUE, "Incumbent": GREY, "Candidate": SKY}


def build(frame: pd.DataFrame) -> AnyChart:
    """One bar per candidate and workload, in the order of the stage.

    Of more than `MOST_ROWS` candidates, incumbent, winner and the best others are drawn; the axis title says so.
    """
    frame = frame[frame["outcome"].isin(("ok", "failed"))]
    if frame.empty:
        return nothing_to_show("No candidate was measured in this stage.")
    everything = len(frame)
    frame = _best(frame)
    frame = frame.sort_values(["workload", "position"], kind="stable").reset_index(drop=True)
    frame["row"] = frame.index
    records = frame.to_dict("records")
    frame["role"] = [_role(record) for record in records]
    frame["text"] = [_text(record) for record in records]
    several = frame["workload"].nunique() > 1
    y = rows([f"{r['candidate']} · {r['workload']}" if several else r["candidate"] for r in records])
    frame["name"] = [f"{r['candidate']}, {r['workload']}: {r['text']}" for r in frame.to_dict("records")]
    ok = frame[frame["outcome"] == "ok"]

    title = axis_title(str(frame["objective"].iloc[0]), str(frame["objective_per"].iloc[0]))
    if len(frame) < everything:
        title += f"; the best of {everything:,}"
    x = alt.X("objective_value:Q", title=title, scale=alt.Scale(zero=True))
    color = alt.Color("role:N", scale=alt.Scale(domain=list(ROLES), range=list(ROLES.values())))
    bars = alt.Chart(ok).mark_bar(height=18, aria=True).encode(x=x, y=y, color=color, description="name:N")
    intervals = (
        alt.Chart(ok.dropna(subset=["objective_ci95_low", "objective_ci95_high"]))
        .mark_errorbar(color=INK, ticks=alt.TickConfig(color=INK, height=8))
        .encode(x=alt.X("objective_ci95_low:Q", title=title), x2="objective_ci95_high:Q", y=y)
    )
    failures = (
        alt.Chart(frame[frame["outcome"] != "ok"])
        .mark_text(align="left", baseline="middle", color=VERMILLION, fontSize=12)
        .encode(x=alt.value(4), y=y, text="text:N")
    )
    layers = alt.layer(bars, intervals, failures, side_text(alt.Chart(ok), y, "text"))
    extrapolated = any(is_extrapolated(row) for row in ok.to_dict("records"))
    return finish(layers.properties(width=PLOT_WIDTH, height=alt.Step(36)), frame["validity"], extrapolated)


def _best(frame: pd.DataFrame) -> pd.DataFrame:
    """At most `MOST_ROWS` rows: incumbent and winner, then those with the best objective."""
    if len(frame) <= MOST_ROWS:
        return frame
    higher_is_better = bool(METRICS.get(str(frame["objective"].iloc[0])).higher_is_better)
    ordered = frame.sort_values("objective_value", ascending=not higher_is_better, na_position="last", kind="stable")
    always = ordered["is_incumbent"] | ordered["is_winner"]
    return pd.concat([ordered[always], ordered[~always]]).head(MOST_ROWS)


def _role(record: dict[Any, Any]) -> str:
    if record["is_winner"]:
        return "Winner"
    return "Incumbent" if record["is_incumbent"] else "Candidate"


def _text(record: dict[Any, Any]) -> str:
    if record["outcome"] != "ok":
        return f"× {record['outcome']}: {str(record['reason']).replace('_', ' ')}"
    if record["is_incumbent"]:
        role = "incumbent, kept" if record["is_winner"] else "incumbent"
    else:
        role = "winner" if record["is_winner"] else ""
    extrapolated = EXTRAPOLATED if is_extrapolated(record) else ""
    return f"{figure(record['objective_value'])}{extrapolated}{mark(record['validity'])}{f' · {role}' if role else ''}"


CHARTS.register(
    "stage_candidates",
    Chart(
        name="stage_candidates",
        reads="stage",
        section="stage",
        caption="What chose: the objective of each candidate, mean over its server starts, visits or logs; line = 95 % "
        "interval if it had several.",
        columns=(
            "position",
            "candidate",
            "workload",
            "is_incumbent",
            "is_winner",
            "outcome",
            "validity",
            "reason",
            "accelerators",
            "accelerators_per_node",
            "objective",
            "objective_per",
            "objective_value",
            "objective_ci95_low",
            "objective_ci95_high",
        ),
        build=build,
    ),
)
