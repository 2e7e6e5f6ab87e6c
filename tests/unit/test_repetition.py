"""Which attempts are measured again, how often, and on which server start."""

from __future__ import annotations

import pyarrow as pa
import pytest

from servelab.core.errors import Outage
from servelab.core.run_spec import ProtocolSpec, RunSpec
from servelab.measure import visits
from servelab.measure.outcome import Outcome
from servelab.measure.server import CandidateFailed, Killed, KilledForMemory
from servelab.measure.visits import measure_fairly
from servelab.metrics.tables import schemas


def attempt(failed: int = 0, requests: int = 1000, delayed_percent: float = 0.0, failure=None) -> Outcome:
    """An attempt of one round of 2 s, with a sample of the CPUs in it."""
    errors = ["HTTP 500"] * failed + [None] * (requests - failed)
    rows = [{"round": 0, "request_index": i, "end_s": 2.0, "error": error} for i, error in enumerate(errors)]
    samples = [
        {"round": 0, "time_s": 1.0, "source": "psutil", "metric": name, "value": delayed_percent}
        for name in ("delayed_percent", "server_waited_percent")
    ]
    return Outcome(
        records=[pa.Table.from_pylist(rows, schema=schemas.RUN_REQUESTS)],
        telemetry=[pa.Table.from_pylist(samples, schema=schemas.TELEMETRY)],
        failure=failure,
    )


CLEAN = attempt()
KILLED = attempt(failure=Killed("crashed", "signal 9"))
FEW_FAILED = attempt(failed=9)
DISTURBED = attempt(delayed_percent=30.0)
LATE = CandidateFailed("round_timeout", "not finished in 60 s")


@pytest.fixture
def measured():
    """Attempts in turn → those that were made, the restarts among them, and what is kept."""

    def measure(*outcomes: Outcome, **protocol):
        left, made = list(outcomes), []

        def one() -> Outcome:
            made.append("attempt")
            return left.pop(0)

        spec = RunSpec.model_construct(protocol=ProtocolSpec(**protocol))
        return made, measure_fairly(spec, one, lambda: made.append("restart"))

    return measure


A, R = "attempt", "restart"


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        ([CLEAN], [A]),
        ([KILLED, CLEAN], [A, R, A]),
        ([KILLED, KILLED], [A, R, A]),
        ([attempt(failure=KilledForMemory("out_of_memory", "signal 9")), CLEAN], [A, R, A]),
        ([attempt(failure=CandidateFailed("crashed", "exit code 1"))], [A]),
        ([attempt(failure=CandidateFailed("crashed", "exit code 1"), delayed_percent=30.0)], [A]),
        ([attempt(failure=LATE)], [A]),
        ([attempt(failure=LATE, delayed_percent=30.0), CLEAN], [A, R, A]),
        ([attempt(failure=LATE, delayed_percent=30.0)] * 3, [A, R, A, R, A]),
        ([FEW_FAILED, CLEAN], [A, R, A]),
        ([FEW_FAILED, FEW_FAILED], [A, R, A]),
        ([attempt(failed=10)], [A]),
        ([attempt(failed=1, requests=100)], [A]),
        ([DISTURBED, CLEAN], [A, A]),
        ([DISTURBED, DISTURBED, CLEAN], [A, A, A]),
        ([DISTURBED, DISTURBED, DISTURBED], [A, A, A]),
        ([attempt(delayed_percent=4.9)], [A]),
        ([attempt(delayed_percent=float("nan"))], [A]),
        ([DISTURBED, FEW_FAILED, KILLED, DISTURBED, DISTURBED], [A, A, R, A, R, A, A]),
        ([attempt(failed=5, delayed_percent=30.0), attempt(failed=5, delayed_percent=30.0), CLEAN], [A, R, A, A]),
    ],
)
def test_what_is_measured_again(outcomes, expected, measured):
    made, kept = measured(*outcomes)
    assert made == expected
    assert kept is outcomes[-1], "the last attempt is kept"
    assert kept.attempts == len(outcomes)


def test_a_warm_up_that_is_late_on_a_busy_machine_is_measured_again(measured):
    late = attempt(failure=LATE, delayed_percent=30.0)
    late.records = []
    made, kept = measured(late, late, CLEAN)
    assert (made, kept.disturbed) == ([A, R, A, R, A], None)


def test_what_stays_disturbed_says_so(measured):
    _, kept = measured(DISTURBED, DISTURBED, DISTURBED)
    assert kept.disturbed and kept.disturbed.startswith("server and client waited 30.0 % of the time for CPUs")
    _, kept = measured(DISTURBED, CLEAN)
    assert kept.disturbed is None


def test_a_run_is_not_repeated_beyond_the_limits_of_its_protocol(measured, monkeypatch):
    """The limit of its job's time counts on that."""
    clock = iter(range(0, 10**6, 200))  # each look at it is 200 s later, so that an attempt takes as long
    monkeypatch.setattr(visits.time, "monotonic", lambda: next(clock))
    bounds = {"startup_timeout_s": 100, "round_timeout_s": 50}  # 2 rounds × (100 + 2 × (50 + 60)) s
    made, kept = measured(DISTURBED, DISTURBED, rounds=2, **bounds)
    assert (len(made), kept.disturbed is None) == (2, False)


def test_a_kill_that_there_is_no_time_to_repeat_is_no_result(measured, monkeypatch):
    """It may have come from outside; the workflow tries the job again."""
    clock = iter(range(0, 10**6, 400))
    monkeypatch.setattr(visits.time, "monotonic", lambda: next(clock))
    with pytest.raises(Outage, match="may have been killed, and there is no time to repeat it: crashed: signal 9"):
        measured(KILLED, rounds=1, startup_timeout_s=100, round_timeout_s=50)
