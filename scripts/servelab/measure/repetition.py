"""Measures a run again after an attempt that is no fair result: disturbed, killed, or with a few failed requests."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from servelab.core.errors import Outage
from servelab.core.run_spec import RunSpec
from servelab.measure.job_minutes import longest_s
from servelab.measure.outcome import Outcome, failed_requests, log_line
from servelab.measure.server import Killed

_FEW = 0.01
"""A smaller share of failed requests may be an accident, such as a lost connection; the second attempt counts."""


class Measured(NamedTuple):
    """The attempt that is kept."""

    outcome: Outcome
    attempts: int
    disturbed: str | None
    """What disturbed the kept attempt; None if nothing."""


def measure_fairly(spec: RunSpec, attempt: Callable[[], Outcome], restart: Callable[[], None]) -> Measured:
    """Calls `attempt` until it gives a fair result or must not be repeated; keeps the last one.

    - If the server may have been killed from outside, once more on another server start (`restart`).
    - If fewer than 1 % of the requests failed, once more on another server start.
    - If others took the CPUs, on the same server start, at most `protocol.repeat_disturbed` times.

    An attempt that would not end within `longest_s` of the run, if it takes as long as the last one, is left out;
    `Outage` if that leaves nothing but a server that was killed once.
    """
    begun, left = time.monotonic(), {"killed": 1, "failed": 1, "disturbed": spec.protocol.repeat_disturbed}
    attempts = 0
    while True:
        attempts += 1
        started = time.monotonic()
        outcome = attempt()
        ended = time.monotonic()
        taken = outcome.taken()
        disturbed = taken.text if taken and taken.disturbs(spec.protocol.max_others_cpu_percent) else None
        cause = next((cause for cause in _causes(outcome, disturbed) if left[cause]), None)
        if cause is None:
            break
        if ended - begun + ended - started > longest_s(spec.protocol, spec.most_rounds):
            if cause == "killed":
                raise Outage(f"the server may have been killed, and there is no time to repeat it: {outcome.failure}")
            break
        left[cause] -= 1
        log_line(f"measured again ({cause}): {outcome.failure or failed_requests(outcome.table()) or disturbed}")
        if cause != "disturbed":
            restart()
    return Measured(outcome, attempts, disturbed)


def _causes(outcome: Outcome, disturbed: str | None) -> list[str]:
    """Why an attempt is no fair result, the most serious first; empty if it is one."""
    if outcome.failure is not None:
        return ["killed"] if isinstance(outcome.failure, Killed) else []
    errors = outcome.table()["error"]
    failed = len(errors) - errors.null_count
    return [*(["failed"] if 0 < failed < _FEW * len(errors) else []), *(["disturbed"] if disturbed else [])]
