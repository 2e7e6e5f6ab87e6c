"""When requests are sent: each kind of arrivals against its definition."""

from __future__ import annotations

import itertools

import pytest
from servers.made_load import load, write_requests

from servelab.core.errors import ServelabError
from servelab.measure.load import LoadPlan
from servelab.measure.load.requests import arrival_times
from servelab.measure.load.sender import send_load


def arrivals(count: int, recorded_s: list[float] | None = None, **settings) -> list[float]:
    plan = LoadPlan(base_url="http://127.0.0.1:1", endpoint="chat", model="m", requests="r.parquet", **settings)
    return arrival_times(plan, count, recorded_s)


def test_nothing_is_sent_before_its_arrival(tmp_path, server):
    records = load(tmp_path, server, ["normal"] * 20, request_rate=200.0, seed=3)
    assert [record["scheduled_s"] for record in records] == arrivals(20, request_rate=200.0, seed=3)
    assert all(record["sent_s"] >= record["scheduled_s"] for record in records)


@pytest.mark.parametrize("burstiness", [0.25, 1.0, 4.0])
def test_gamma_arrivals_have_the_rate_and_the_burstiness(burstiness):
    times = arrivals(40_000, request_rate=50.0, arrivals="gamma", burstiness=burstiness)
    gaps = [after - before for before, after in itertools.pairwise(times)]
    mean = sum(gaps) / len(gaps)
    variance = sum((gap - mean) ** 2 for gap in gaps) / len(gaps)
    assert mean == pytest.approx(1 / 50, rel=0.05)
    assert variance**0.5 / mean == pytest.approx(burstiness**-0.5, rel=0.05)
    assert arrivals(20, request_rate=50.0, seed=1) == arrivals(20, request_rate=50.0, seed=1)
    assert arrivals(20, request_rate=50.0, seed=1) != arrivals(20, request_rate=50.0, seed=2)


def test_ramp_up_grows_the_rate_evenly():
    # A rate that grows evenly to 10/s in 20 s gives 10·t²/40 requests until t.
    times = arrivals(400, request_rate=10.0, arrivals="constant", ramp_up_s=20.0)
    assert [sum(time < until - 1e-9 for time in times) for until in (4, 8, 12, 16, 20)] == [4, 16, 36, 64, 100]
    after = [time for time in times if time >= 20]
    assert [later - time for time, later in itertools.pairwise(after)] == pytest.approx([0.1] * (len(after) - 1))


def test_replay_keeps_the_recorded_times(tmp_path, server):
    requests = write_requests(tmp_path / "requests.parquet", ["normal"] * 3, arrival_s=[5.0, 4.0, 4.25])
    plan = {"base_url": server, "endpoint": "chat", "model": "m", "requests": requests, "arrivals": "replay"}
    records, _, _ = send_load(LoadPlan(**plan))
    assert records["request_index"].to_pylist() == [1, 2, 0]
    assert records["scheduled_s"].to_pylist() == [0.0, 0.25, 1.0]
    write_requests(requests, ["normal"] * 3)
    with pytest.raises(ServelabError, match="no arrival times"):
        send_load(LoadPlan(**plan))
