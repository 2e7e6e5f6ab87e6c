"""The bottleneck of each side of the comparison, in one line, from the counters of engine and devices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from servelab.core.yaml_file import figure

FULL_PERCENT = 95.0
"""Of the KV cache in use: from here on it counts as full."""
IDLE_PERCENT = 60.0
"""A device that is less busy waits for something else."""
REFUSED_PERCENT = 40.0
"""Fewer drafted tokens accepted than this cost more than they give."""
PREFILL_SHARE = 0.4
"""Of a request's time before its first token, where no request waits."""


Counters = dict[str, float]
"""Figures of one run under load, those that were read: of `_WORDS`, and means of metrics."""
_WORDS = {
    "kv_percent": "KV cache up to {} %",
    "waiting": "{} requests waited",
    "preempted": "{} preempted",
    "busy_percent": "device {} % busy",
    "power_w": "{} W a device",
    "memory_gib": "{} GiB a device",
}


def counters_of(run_id: str, series: pd.DataFrame, means: Mapping[Any, float]) -> Counters:
    """From rows of schemas.DEVICE_SERIES, and (run, metric) → mean."""
    of_run = {str(name): rows["value"] for name, rows in series[series["run_id"] == run_id].groupby("metric")}
    mean = {name: float(values.mean()) for name, values in of_run.items()}
    kv, preempted = of_run.get("kv_cache_usage_fraction"), of_run.get("preemptions_total")
    busy = (mean.get(f"{name}_percent") for name in ("gpu_utilization", "npu_utilization", "own_cpu"))
    memory = mean.get("memory_used_bytes")
    found = {
        "kv_percent": None if kv is None else 100 * float(kv.max()),
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
    if found.get("kv_percent", 0.0) >= FULL_PERCENT and (found.get("preempted") or waiting):
        return f"KV cache full: up to {found['kv_percent']:.0f} % in use while requests wait or are preempted"
    if waiting is None:
        return ""
    if waiting >= 1:
        return f"batch full: {figure(waiting)} requests waited, with room in the KV cache"
    if busy is not None and busy < IDLE_PERCENT:
        return f"client-bound: no request waited and the device was {busy:.0f} % busy"
    before = found.get("ttft_ms", 0.0) / (found.get("e2el_ms") or 1.0)
    if "e2el_ms" in found and before >= PREFILL_SHARE:
        return f"prefill-bound: {100 * before:.0f} % of a request is before its first token"
    return "decode-bound: no request waited and the device was busy" if busy is not None else ""
