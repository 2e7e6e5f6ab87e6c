"""Energy figures: known answers on made telemetry, and none where they would be a guess."""

from __future__ import annotations

import pandas as pd
import pyarrow as pa
import pytest

from servelab.metrics.definitions import METRICS, Round
from servelab.metrics.definitions.telemetry import energy_j
from servelab.metrics.tables import schemas
from servelab.metrics.tables.io import record_array

START_S, END_S = 0.5, 20.5


def telemetry(*rows, devices=1):
    """Rows of (time_s, metric, value[, device]), with the count of devices once."""
    full = [(0, row[0], "nvml", row[3] if len(row) > 3 else "0", row[1], row[2]) for row in rows]
    count = [(0, 0.0, "nvml", None, "devices", devices)] if devices else []
    frame = pd.DataFrame(count + full, columns=schemas.TELEMETRY.names)
    return record_array(pa.Table.from_pandas(frame, schema=schemas.TELEMETRY))


def power(watts=lambda time_s: 300.0, times=range(-1, 23), device="0"):
    return [(float(time_s), "power_w", watts(time_s), device) for time_s in times]


def counter(watts=300.0, times=(-0.5, 7.0, 21.0), device="0"):
    return [(time_s, "energy_j_total", 1e6 + watts * time_s, device) for time_s in times]


@pytest.mark.parametrize(
    ("rows", "devices", "joules"),
    [
        (power(), 1, 300 * 20),
        (power(lambda time_s: 100 + 10 * time_s), 1, 100 * 20 + 10 * (END_S**2 - START_S**2) / 2),
        (power(lambda time_s: 300, times=range(-4, 25, 4)), 1, 300 * 20),
        (power()[::-1], 1, 300 * 20),
        (counter(), 1, 300 * 20),
        (counter(250) + power(), 1, 250 * 20),  # the counter misses nothing between two readings
        (counter(times=(-1, 30)), 1, 300 * 20),
        (counter(250, device="4") + power(device="7"), 2, 550 * 20),
    ],
)
def test_known_energy(rows, devices, joules):
    assert energy_j(telemetry(*rows, devices=devices), START_S, END_S) == pytest.approx(joules)


@pytest.mark.parametrize(
    ("rows", "devices"),
    [
        ([], 1),
        (power(), 0),
        (power(), 2),
        (power() + counter(device="1", times=(1.0, 30.0)), 2),
        (power(times=range(1, 23)), 1),
        (power(times=range(-1, 20)), 1),
        (power(times=[-1, 0, 1, 2, 10, 15, 21]), 1),
        (power(times=[-1, 21]), 1),
        (power(lambda time_s: 0.0 if time_s == 7 else 300.0), 1),
        (counter(times=(1.0, 30.0)), 1),
        (counter(times=(-1.0, 20.0)), 1),
        (counter(watts=0.0), 1),
        (counter(watts=-1.0), 1),
    ],
    ids=[
        "nothing read",
        "devices not known",
        "a device missing",
        "a device read too late",
        "power read too late",
        "power not read to the end",
        "power with a hole",
        "power before and after only",
        "power of zero",
        "counter read too late",
        "counter not read to the end",
        "counter that stands still",
        "counter that falls",
    ],
)
def test_no_figure_is_better_than_a_guess(rows, devices):
    table = telemetry(*rows, devices=devices)
    assert energy_j(table, START_S, END_S) is None
    for tag in ("energy_per_output_token_j", "energy_per_token_j", "mean_power_w"):
        assert METRICS.get(tag).observe(Round(requests(), {}, table)).size == 0


def requests(error=None):
    """Two requests over the 20 s, one of them failed."""
    success = {"scheduled_s": 0.0, "sent_s": START_S, "end_s": 18.0, "input_tokens": 30, "output_tokens": 10}
    failure = {**success, "sent_s": 1.0, "end_s": END_S, "error": "closed_early: x"}
    rows = [{**success, "error": error}, failure]
    return record_array(pa.Table.from_pylist(rows, schema=schemas.RUN_REQUESTS))


@pytest.mark.parametrize(
    ("tag", "value"),
    [("energy_per_output_token_j", 600.0), ("energy_per_token_j", 150.0), ("mean_power_w", 300.0)],
)
def test_energy_of_the_whole_duration_is_shared_by_the_tokens_of_successes(tag, value):
    assert METRICS.get(tag).observe(Round(requests(), {}, telemetry(*power()))) == pytest.approx([value])
