"""The bottleneck of each side of the comparison, in one line, from the counters of engine and devices."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from servelab.core.figure_text import figure

FULL_PERCENT = 95.0
"""Of the KV cache in use: from here on it counts as full."""
IDLE_PERCENT = 60.0
"""A device that is less busy waits for something else."""
REFUSED_PERCENT = 40.0
"""Fewer drafted tokens accepted than this cost more than they give."""
PREFILL_SHARE = 0.4
"""Of a request's time before its first token, where no batch is full."""
FULL_SHARE = 0.9
"""Mean of the requests that ran, of the most that ran (a full batch) or may be in flight (the client keeps up)."""

Counters = dict[str, float]
"""Figures of one run under load, those that were read: of `_WORDS`, and means of metrics."""
_WORDS = {
    "kv_percent": "KV cache up to {} %",
    "running": "{} requests ran",
    "waiting": "{} requests waited",
    "preempted": "{} preempted",
    "busy_percent": "device {} % busy",
    "power_w": "{} W a device",
    "memory_gib": "{} GiB a device",
}


def counters_of(
    run_id: str, series: pd.DataFrame, means: Mapping[Any, float], in_flight: float | None = None
) -> Counters:
    """From rows of schemas.DEVICE_SERIES, (run, metric) → mean, and the most requests that the client has in flight."""
    of_run = {str(name): rows["value"] for name, rows in series[series["run_id"] == run_id].groupby("metric")}
    mean = {name: float(values.mean()) for name, values in of_run.items()}
    series_read = ("kv_cache_usage_fraction", "preemptions_total", "requests_running")
    kv, preempted, running = (of_run.get(name) for name in series_read)
    busy = (mean.get(f"{name}_percent") for name in ("gpu_utilization", "npu_utilization", "own_cpu"))
    memory = mean.get("memory_used_bytes")
    found = {
        "kv_percent": None if kv is None else 100 * float(kv.max()),
        "in_flight": in_flight,
        "running": mean.get("requests_running"),
        "most_running": None if running is None else float(running.max()),
        "waiting": mean.get("requests_waiting"),
        "preempted": None if preempted is None else float(preempted.max() - preempted.min()),
        "busy_percent": next((value for value in busy if value is not None), None),
        "power_w": mean.get("power_w"),
        "memory_gib": memory and memory / 2**30,
        **{name: means.get((run_id, name)) for name in ("draft_acceptance_percent", "ttft_ms", "e2el_ms")},
    }
    return {name: value for name, value in found.items() if value is not None}


def counters_text(found: Counters) -> str:
    """The figures in words."""
    return ", ".join(words.format(figure(found[name])) for name, words in _WORDS.items() if name in found)


def limited_by(found: Counters) -> str:
    """The first cause that its counters show; empty if they show none."""
    accepted, waiting, busy = (found.get(name) for name in ("draft_acceptance_percent", "waiting", "busy_percent"))
    if accepted is not None and accepted < REFUSED_PERCENT:
        return f"drafts refused: {figure(accepted)} % of the drafted tokens were accepted"
    kv, preempted = found.get("kv_percent", 0.0), found.get("preempted", 0.0)
    if preempted or (kv >= FULL_PERCENT and waiting is not None and waiting >= 1):
        return f"KV cache full: up to {kv:.0f} % in use while requests wait or are preempted"
    if waiting is None:
        return ""
    before = found.get("ttft_ms", 0.0) / (found.get("e2el_ms") or 1.0)
    is_prefill = "e2el_ms" in found and before >= PREFILL_SHARE
    running = found.get("running", 0.0)
    if waiting >= 1 and (not is_prefill or running >= FULL_SHARE * found.get("most_running", 0.0)):
        return f"batch full: {figure(waiting)} requests waited, with room in the KV cache"
    if waiting < 1 and busy is not None and busy < IDLE_PERCENT:
        if running >= FULL_SHARE * found.get("in_flight", math.inf):
            return f"host-bound: {figure(running)} requests on a device {busy:.0f} % busy; graphs missed or CPUs short"
        return f"client-bound: no request waited and the device was {busy:.0f} % busy"
    if is_prefill:
        return f"prefill-bound: {100 * before:.0f} % of a request is before its first token"
    return "decode-bound: no request waited and the device was busy" if busy is not None else ""
