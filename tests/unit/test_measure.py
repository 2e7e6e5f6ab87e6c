"""When a run has enough rounds, and when what its requests say is a failure."""

from __future__ import annotations

import pyarrow as pa
import pytest

from servelab import schemas
from servelab.clients import LoadResult, LoadStats
from servelab.load import LoadPlan
from servelab.measure import enough
from servelab.server import CandidateFailed
from servelab.session import check_served, warmup_plan
from servelab.spec import ProtocolSpec, RoundsSpec, RunSpec


def result(errors, end_s=1.0, **stats):
    rows = [{"round": 0, "request_index": i, "end_s": end_s, "error": error} for i, error in enumerate(errors)]
    return LoadResult(pa.Table.from_pylist(rows, schema=schemas.RUN_REQUESTS), LoadStats(**stats))


def spec(round_timeout_s, **protocol):
    return RunSpec.model_construct(protocol=ProtocolSpec(round_timeout_s=round_timeout_s, **protocol))


@pytest.mark.parametrize(
    ("rounds", "values", "stops"),
    [
        (RoundsSpec(min=2, max=9), [100.0] * 8, False),
        (RoundsSpec(min=3, max=9, until_ci95_below_percent=2), [100.0, 100.0], False),
        (RoundsSpec(min=3, max=9, until_ci95_below_percent=2), [100.0, 100.1, 99.9], True),
        (RoundsSpec(min=3, max=9, until_ci95_below_percent=2), [100.0, 110.0, 90.0], False),
        (RoundsSpec(min=1, max=9, until_ci95_below_percent=2), [100.0], False),
        (RoundsSpec(min=1, max=9, until_ci95_below_percent=2), [], False),
    ],
)
def test_rounds_end_once_the_interval_is_narrow(rounds, values, stops):
    assert enough(rounds, values) is stops


def test_some_failed_requests_are_left_to_the_decision():
    check_served(result([None, "HTTP 500"]), spec(60))
    check_served(result([None, None]), spec(60))


def test_all_requests_failed():
    with pytest.raises(CandidateFailed, match="requests_failed: 3 of 3 requests failed, 2 of them: HTTP 500"):
        check_served(result(["HTTP 500", "refused", "HTTP 500"]), spec(60))


def test_round_out_of_time():
    with pytest.raises(CandidateFailed, match="round_timeout: not finished in 60 s"):
        check_served(result([None, "timeout"], end_s=60.0), spec(60))


def test_round_ended_for_saturation():
    with pytest.raises(CandidateFailed, match="saturated: 64 requests were in flight"):
        check_served(result([None, "saturated: unfinished"], saturated=True), spec(60, saturation_in_flight=64))


def test_warm_up_is_nothing_but_its_requests(tmp_path):
    plan = LoadPlan(
        base_url="http://127.0.0.1:1",
        endpoint="chat",
        model="m",
        requests=tmp_path / "requests.parquet",
        round=2,
        settle_requests=8,
        request_rate=3.0,
        arrivals="gamma",
        burstiness=0.5,
        ramp_up_s=9.0,
        duration_s=60.0,
        saturation_in_flight=1,
        processes=2,
        body={"ignore_eos": True},
    )
    warmup = warmup_plan(plan, 4)
    given = {"phase": "warmup", "limit": 4, "round": 2, "body": {"ignore_eos": True}}
    assert warmup == LoadPlan(
        **{name: getattr(plan, name) for name in ("base_url", "endpoint", "model", "requests")}, **given
    )
