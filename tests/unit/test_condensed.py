"""What charts draw of telemetry."""

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from servelab.core.errors import ServelabError
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
