"""Upper bound on a measuring job's run time, used as its time limit in a batch system."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil

from servelab.core.run_spec import ProtocolSpec, RunSpec

CLIENT_SLACK_S = 60.0
"""Time for a client to start and to write its records, in addition to the round."""
_JOB_S = 600.0
"""Time of a job outside its rounds: Snakemake's start, reads from a busy file system, stopping the server."""
_TIMES_PAST = 3.0
"""A run may take this many times the mean of similar past runs."""


def longest_s(protocol: ProtocolSpec, rounds: int) -> float:
    """Most seconds that a number of rounds can take: each may restart the server, warm up and send load."""
    loads = 2 if protocol.warmup_requests else 1
    return rounds * (protocol.startup_timeout_s + loads * (protocol.round_timeout_s + CLIENT_SLACK_S))


def runtime_min(
    visits: Sequence[Sequence[RunSpec]], about_s: Callable[[RunSpec], float | None] = lambda spec: None
) -> int:
    """Minutes that a job requests for the runs of its visits.

    `about_s` returns the mean of similar past runs in accelerator-seconds, or None if there are none. 600 s, and for
    each visit the sum over its runs of `longest_s`, because the protocol's own limits end a run by then (it is measured
    again only within them); or, if that is less, one start-up and the sum of `3 × about_s / accelerators`, if all of
    its runs have similar past ones.
    """
    return ceil((_JOB_S + sum(_visit_s(visit, about_s) for visit in visits)) / 60)


def _visit_s(visit: Sequence[RunSpec], about_s: Callable[[RunSpec], float | None]) -> float:
    most_s = sum(longest_s(spec.protocol, spec.most_rounds) for spec in visit)
    past = [(about_s(spec), spec.hardware.count) for spec in visit]
    known = [_TIMES_PAST * seconds / count for seconds, count in past if seconds is not None]
    if len(known) < len(visit):
        return most_s
    # a mean of runs that began on a running server does not have the start-up in it
    return min(most_s, max(spec.protocol.startup_timeout_s for spec in visit) + sum(known))
