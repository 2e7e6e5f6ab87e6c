"""Load and telemetry over the time of each round, for baseline and winner on the deciding workload."""

from __future__ import annotations

from collections.abc import Mapping

import altair as alt
import pandas as pd

from servelab.report.charts import SIDE_OF, SIDES, AnyChart, chart, finish, kind_channels

PANELS = {
    "requests_in_flight": ("Requests in flight", 1.0),
    "output_tokens_per_s": ("Output tokens/s", 1.0),
    "gpu_utilization_percent": ("GPU utilisation (%)", 1.0),
    "npu_utilization_percent": ("NPU utilisation (%)", 1.0),
    "power_w": ("Power of a device (W)", 1.0),
    "memory_used_bytes": ("Memory of a device (GiB)", 2.0**30),
    "own_cpu_percent": ("CPU time of the run (%)", 1.0),
    "server_rss_bytes": ("Memory of the server (GiB)", 2.0**30),
    "kv_cache_usage_fraction": ("KV cache in use (%)", 0.01),
    "requests_waiting": ("Requests waiting", 1.0),
}
"""Metric → title of its panel, and the divisor of its values."""
MOST_ROUNDS = 3
MOST_PIECES = 60
"""Most points of a line."""
WIDTH, HEIGHT = 158, 80
COLUMNS = ("candidate", "validity", "workload", "round", "metric", "time_s", "value")


def series_rows(of_runs: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Rows of `timeline` and `device_series`, as far as they exist, as one table of series."""
    timeline = of_runs.get("timeline", pd.DataFrame(columns=["workload", "candidate", "round"]))
    names = ["workload", "candidate", "round"]
    pieces = [_pieces(rows) for _, rows in timeline.groupby(names, sort=False)]
    series = of_runs.get("device_series", pd.DataFrame(columns=COLUMNS))
    return pd.concat([pd.DataFrame(columns=COLUMNS), *pieces, series[list(COLUMNS)]], ignore_index=True)


def _pieces(rows: pd.DataFrame) -> pd.DataFrame:
    """One round of one run, with buckets joined to at most `MOST_PIECES`."""
    rows = rows.sort_values("start_s")
    piece = pd.Series(range(len(rows)), index=rows.index) // -(-len(rows) // MOST_PIECES)
    grouped = rows.groupby(piece)
    seconds = grouped["seconds"].sum()
    joined = pd.DataFrame(
        {
            "time_s": grouped["start_s"].min() + seconds / 2,
            "requests_in_flight": grouped["requests_in_flight"].mean(),
            "output_tokens_per_s": grouped["output_tokens"].sum() / seconds,
        }
    )
    first = rows.iloc[0]
    shared = {name: first[name] for name in ("workload", "candidate", "round", "validity")}
    return joined.melt(id_vars="time_s", var_name="metric", value_name="value").assign(**shared)


@chart(
    "over_time", "series", "time", "The deciding workload, mean over a run's devices; a line for each round, 3 at most."
)
def _over_time(frame: pd.DataFrame) -> AnyChart | None:
    """Panels in two columns, one line per round, on the first workload of the rows; None without any of `PANELS`."""
    frame = frame[frame["metric"].isin(PANELS) & (frame["round"] < MOST_ROUNDS)]
    if frame.empty:
        return None
    frame = frame[frame["workload"] == frame["workload"].iloc[0]].assign(side=frame["candidate"].map(SIDE_OF))
    found = set(frame["metric"])
    panels = [_panel(frame[frame["metric"] == metric], *PANELS[metric]) for metric in PANELS if metric in found]
    rows = [alt.hconcat(*panels[start : start + 2], spacing=14) for start in range(0, len(panels), 2)]
    return finish(alt.vconcat(*rows, spacing=14), frame["validity"])


def _panel(frame: pd.DataFrame, title: str, unit: float) -> AnyChart:
    points = frame.assign(shown=frame["value"].astype(float) / unit)[["side", "round", "time_s", "shown"]].round(3)
    drawn: alt.Chart = (
        alt.Chart(points)
        .mark_line(strokeWidth=1.5, opacity=0.8, point=alt.OverlayMarkDef(size=14))
        .encode(
            x=alt.X("time_s:Q", title="Time (s)", axis=alt.Axis(grid=False, tickCount=3)),
            y=alt.Y("shown:Q", title=None, axis=alt.Axis(tickCount=3, format=",~r")),
            color=kind_channels({side: (colour, "circle") for side, colour in SIDES.items()}, "side")[0],
            detail="round:N",
        )
    )
    return drawn.properties(width=WIDTH, height=HEIGHT, title=alt.Title(title, fontSize=12, fontWeight="normal"))
