"""When a run has enough rounds, and when what its requests say is a failure."""

from __future__ import annotations

import pyarrow as pa
import pytest

from servelab import schemas
from servelab.measure import check_served, enough
from servelab.server import CandidateFailed
from servelab.spec import ProtocolSpec, RoundsSpec, RunSpec


def records(errors, end_s=1.0):
    rows = [{"round": 0, "request_index": i, "end_s": end_s, "error": error} for i, error in enumerate(errors)]
    return pa.Table.from_pylist(rows, schema=schemas.RUN_REQUESTS)


def spec(round_timeout_s):
    return RunSpec.model_construct(protocol=ProtocolSpec(round_timeout_s=round_timeout_s))


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
    check_served(records([None, "HTTP 500"]), spec(60))
    check_served(records([None, None]), spec(60))


def test_all_requests_failed():
    with pytest.raises(CandidateFailed, match="requests_failed: 3 of 3 requests failed, 2 of them: HTTP 500"):
        check_served(records(["HTTP 500", "refused", "HTTP 500"]), spec(60))


def test_round_out_of_time():
    with pytest.raises(CandidateFailed, match="round_timeout: not finished in 60 s"):
        check_served(records([None, "timeout"], end_s=60.0), spec(60))
