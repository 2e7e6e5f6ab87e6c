"""How long a job may take that measures: a batch system wants to know beforehand, and ends it then."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from servelab.spec import ProtocolSpec, RunSpec

CLIENT_SLACK_S = 60.0
"""What a client may need beyond the round: its start, and writing its records."""
_JOB_S = 600.0
"""Time of a job beside its rounds: Snakemake's start, reading files from a busy file system, stopping the server."""
_TIMES_PAST = 3.0
"""A run may take so many times what runs like it took on average."""


def longest_s(protocol: ProtocolSpec, rounds: int) -> float:
    """Seconds that so many rounds can take at most: each may start the server anew, warm up, and put the load on."""
    loads = 2 if protocol.warmup_requests else 1
    return rounds * (protocol.startup_timeout_s + loads * (protocol.round_timeout_s + CLIENT_SLACK_S))


def runtime_min(spec: RunSpec, about_s: float | None) -> int:
    """Minutes that a run asks for; `about_s` is what runs like it took on average, in accelerator-seconds.

    `600 s + longest_s`, for no run takes longer than its protocol's own limits; or `600 s + 3 × about_s / accelerators`
    where that is less.
    """
    most_s = longest_s(spec.protocol, spec.protocol.rounds.max)
    if about_s is not None:
        most_s = min(most_s, _TIMES_PAST * about_s / spec.hardware.count)
    return ceil((_JOB_S + most_s) / 60)


def pair_runtime_min(sides: Sequence[RunSpec], cycles: int) -> int:
    """Minutes that an interleaved pair asks for: each cycle has two rounds of each side, on servers started anew."""
    cycle_s = 2 * sum(longest_s(side.protocol, 1) for side in sides)
    return ceil((_JOB_S + cycles * cycle_s) / 60)
