"""What charts draw of records and telemetry, and which runs are on the Pareto front, beside plain recomputations."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from servelab.core.errors import ServelabError
from servelab.metrics.objective import THROUGHPUT, measured, on_front
from servelab.metrics.tables import schemas
from servelab.results.curves import MOST_POINTS, condensed, device_series


def sample(round_number: int, time_s: float, metric: str, value: float, source: str = "nvml", device: str | None = "0"):
    names = ("round", "time_s", "source", "device", "metric", "value")
    return dict(zip(names, (round_number, time_s, source, device, metric, value), strict=True))


@pytest.fixture
def runs(tmp_path):
    folder = tmp_path / "runs/a"
    folder.mkdir(parents=True)
    samples = [sample(0, time, "power_w", 300.0 + time) for time in range(-2, 5)]
    pq.write_table(pa.Table.from_pylist(samples, schema=schemas.TELEMETRY), folder / "telemetry.parquet")
    return folder.parent


def planned(*run_ids: str, outcome: str = "ok") -> pd.DataFrame:
    return pd.DataFrame([{"study": "s", "run_id": run, "workload": "w", "outcome": outcome} for run in run_ids])


def test_telemetry_begins_with_the_load(runs):
    found = device_series(planned("a"), runs).to_pandas()
    assert found["time_s"].tolist() == [0, 1, 2, 3, 4]
    assert found["value"].tolist() == [300, 301, 302, 303, 304]


def test_a_long_round_of_several_devices_has_few_points_with_their_means():
    rows = [
        sample(0, time, "power_w", 100.0 + 200 * device, device=str(device)) for time in range(600) for device in (0, 1)
    ]
    rows += [sample(0, time, "clock_sm_mhz", 1.0) for time in range(600)]
    found = pd.DataFrame(condensed(pd.DataFrame(rows)))
    assert len(found) == MOST_POINTS and set(found["metric"]) == {"power_w"}
    assert found["value"].tolist() == pytest.approx([200.0] * MOST_POINTS)
    assert found["time_s"].is_monotonic_increasing


def test_a_run_that_failed_is_left_out_and_a_broken_file_is_named(runs):
    assert len(device_series(planned("a", outcome="failed"), runs)) == 0
    (runs / "a/telemetry.parquet").write_text("no table")
    with pytest.raises(ServelabError, match=r"a/telemetry\.parquet: not a readable Parquet file"):
        device_series(planned("a"), runs)


def tried(seed: int, count: int = 60) -> pd.DataFrame:
    draw = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "stage": "s",
            "candidate": [f"c{number}" for number in range(count)],
            "run_id": [f"r{number}" for number in range(count)],
            "is_incumbent": [number == 0 for number in range(count)],
            "is_winner": [number == 7 for number in range(count)],
            "outcome": "ok",
            "validity": draw.choice(["ok", "suspect", "invalid"], count),
            "too_many_failed": draw.random(count) < 0.1,
            "accelerators": draw.choice([1, 2, 4], count),
            "total_tokens_per_s": draw.integers(100, 120, count).astype(float),
            "ttft_ms_mean": draw.integers(1, 20, count).astype(float),
            "tpot_ms_mean": draw.integers(1, 20, count).astype(float),
        }
    )


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("latency", ["ttft_ms_mean", "tpot_ms_mean"])
def test_on_the_front_is_what_no_valid_run_is_as_good_as_and_better_than(seed, latency):
    runs = measured(tried(seed))
    found = set(runs.loc[on_front(runs, latency), "run_id"])
    assert runs["too_many_failed"].any()
    valid = runs[(runs["validity"] != "invalid") & ~runs["too_many_failed"]].to_dict("records")
    points = {row["run_id"]: (row[latency], -row[THROUGHPUT]) for row in valid}
    best = {
        run
        for run, point in points.items()
        if not any(other != point and other[0] <= point[0] and other[1] <= point[1] for other in points.values())
    }
    assert found <= best
    assert {points[run] for run in found} == {points[run] for run in best}  # of equal runs one stands for all
