"""Accelerators, machine and server under load: utilisation, power, memory, KV cache."""

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

PANELS = {
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
WIDTH, HEIGHT = 158, 80


def build(frame: pd.DataFrame) -> AnyChart:
    """Panels in two columns, one line per round, on the first workload of the rows, which is the deciding one."""
    frame = frame[frame["metric"].isin(PANELS) & (frame["round"] < MOST_ROUNDS)]
    if frame.empty:
        return nothing_to_show("No telemetry was sampled under load.")
    frame = frame[frame["workload"] == frame["workload"].iloc[0]].assign(side=frame["candidate"].map(SIDE_OF))
    found = set(frame["metric"])
    panels = [_panel(frame[frame["metric"] == metric], *PANELS[metric]) for metric in PANELS if metric in found]
    rows = [alt.hconcat(*panels[start : start + 2], spacing=14) for start in range(0, len(panels), 2)]
    return finish(alt.vconcat(*rows, spacing=14), frame["validity"])


def _panel(frame: pd.DataFrame, title: str, unit: float) -> AnyChart:
    points = frame.assign(shown=frame["value"] / unit)[["side", "round", "time_s", "shown"]].round(3)
    chart: alt.Chart = (
        alt.Chart(points)
        .mark_line(strokeWidth=1.5, opacity=0.8, point=alt.OverlayMarkDef(size=14))
        .encode(
            x=alt.X("time_s:Q", title="Time (s)", axis=alt.Axis(grid=False, tickCount=3)),
            y=alt.Y("shown:Q", title=None, axis=alt.Axis(tickCount=3, format=",~r")),
            color=side_colour(),
            detail="round:N",
        )
    )
    return chart.properties(width=WIDTH, height=HEIGHT, title=alt.Title(title, fontSize=12, fontWeight="normal"))


CHARTS.register(
    "device_telemetry",
    Chart(
        name="device_telemetry",
        reads="device_series",
        section="time",
        caption="Telemetry under load on the deciding workload, mean over the devices of a run; one line for each of "
        f"the first {MOST_ROUNDS} rounds.",
        columns=("candidate", "validity", "workload", "round", "metric", "time_s", "value"),
        build=build,
    ),
)
