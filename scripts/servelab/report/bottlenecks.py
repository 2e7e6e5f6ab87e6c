"""The bottleneck of each side of the comparison, in one line, from the counters of engine and devices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from servelab.core.yaml_file import figure

FULL = 0.95
"""Share of the KV cache in use from which it counts as full."""
IDLE_PERCENT = 60.0
"""A device that is less busy waits for something else."""
REFUSED_PERCENT = 40.0
"""Fewer drafted tokens accepted than this cost more than they give."""
PREFILL_SHARE = 0.4
"""Of a request's time before its first token, where no request waits."""


@dataclass(frozen=True)
class RunCounters:
    """Telemetry of one run under load, and its means; a value that was not read is None."""

    kv_most: float | None = None
    """Largest share of the KV cache in use."""
    waiting: float | None = None
    """Requests that waited in the server, mean."""
    preempted: float | None = None
    busy_percent: float | None = None
    """Of the accelerators, or of the machine's CPUs without any."""
    power_w: float | None = None
    memory_bytes: float | None = None
    accepted_percent: float | None = None
    """Of drafted tokens."""
    ttft_ms: float | None = None
    e2el_ms: float | None = None

    @property
    def text(self) -> str:
        """The figures in words, those that were read."""
        parts = {
            "KV cache up to {} %": self.kv_most and 100 * self.kv_most,
            "{} requests waited": self.waiting,
            "{} preempted": self.preempted,
            "device {} % busy": self.busy_percent,
            "{} W a device": self.power_w,
            "{} GiB a device": self.memory_bytes and self.memory_bytes / 2**30,
        }
        return ", ".join(words.format(figure(value)) for words, value in parts.items() if value is not None)


def counters_of(run_id: str, series: pd.DataFrame, means: Mapping[Any, float]) -> RunCounters:
    """From rows of schemas.DEVICE_SERIES, and (run, metric) → mean."""
    of_run = {str(name): rows["value"] for name, rows in series[series["run_id"] == run_id].groupby("metric")}
    mean = {name: float(values.mean()) for name, values in of_run.items()}
    kv, preempted = of_run.get("kv_cache_usage_fraction"), of_run.get("preemptions_total")
    busy = (mean.get(f"{name}_percent") for name in ("gpu_utilization", "npu_utilization", "own_cpu"))
    return RunCounters(
        kv_most=None if kv is None else float(kv.max()),
        waiting=mean.get("requests_waiting"),
        preempted=None if preempted is None else float(preempted.max() - preempted.min()),
        busy_percent=next((value for value in busy if value is not None), None),
        power_w=mean.get("power_w"),
        memory_bytes=mean.get("memory_used_bytes"),
        accepted_percent=means.get((run_id, "draft_acceptance_percent")),
        ttft_ms=means.get((run_id, "ttft_ms")),
        e2el_ms=means.get((run_id, "e2el_ms")),
    )


def limited_by(found: RunCounters) -> str:
    """The first cause that its counters show; empty if they show none."""
    if found.accepted_percent is not None and found.accepted_percent < REFUSED_PERCENT:
        return f"drafts refused: {figure(found.accepted_percent)} % of the drafted tokens were accepted"
    if found.kv_most is not None and found.kv_most >= FULL and (found.preempted or found.waiting):
        return f"KV cache full: up to {100 * found.kv_most:.0f} % in use while requests wait or are preempted"
    if found.waiting is None:
        return ""
    if found.waiting >= 1:
        return f"batch full: {figure(found.waiting)} requests waited, with room in the KV cache"
    if found.busy_percent is not None and found.busy_percent < IDLE_PERCENT:
        return f"client-bound: no request waited and the device was {found.busy_percent:.0f} % busy"
    if found.ttft_ms and found.e2el_ms and found.ttft_ms / found.e2el_ms >= PREFILL_SHARE:
        return f"prefill-bound: {100 * found.ttft_ms / found.e2el_ms:.0f} % of a request is before its first token"
    return "decode-bound: no request waited and the device was busy" if found.busy_percent is not None else ""
