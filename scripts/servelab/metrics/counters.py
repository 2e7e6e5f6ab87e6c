"""Counters of a server over a round's load."""

from __future__ import annotations

import numpy as np

from servelab.metrics.tables.record_array import Floats, RecordArray


def increase(telemetry: RecordArray, metric: str) -> float | None:
    """Increase of a counter of the server during the load; None if it was not read twice, or fell.

    `telemetry` has the round's rows of `schemas.TELEMETRY`.
    """
    found = telemetry[telemetry["metric"] == metric]
    found = found[np.argsort(found["time_s"], kind="stable")]
    before = found["time_s"] <= 0
    values = found["value"][max(0, before.sum() - 1) :]
    return float(values[-1] - values[0]) if len(values) > 1 and (np.diff(values) >= 0).all() else None


def during_load(telemetry: RecordArray, metric: str) -> Floats:
    """The readings of a gauge after the load began."""
    values: Floats = telemetry[(telemetry["metric"] == metric) & (telemetry["time_s"] > 0)]["value"]
    return values
