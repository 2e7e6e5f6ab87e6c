"""Sends a plan's requests and returns a record of each, failed ones included."""

from __future__ import annotations

import gc
import resource
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from servelab.core.errors import ConfigError
from servelab.measure.load.board import Board, LoadProgress
from servelab.measure.load.plan import LoadPlan, LoadStats
from servelab.measure.load.processes import Share, max_rss_bytes, process_count, send_alone, send_shared
from servelab.measure.load.records import ERRORS, Record, make_answers, make_table
from servelab.measure.load.requests import Requests, prepare

__all__ = ["ERRORS", "run_load", "send_load"]

_OTHER_FILES = 64
"""Open files in addition to the requests in flight."""


class Sent(NamedTuple):
    """What sending a plan gave."""

    records: pa.Table
    """`schemas.RUN_REQUESTS`, one row per request in order of arrival."""
    stats: LoadStats
    answers: pa.Table | None
    """`schemas.RUN_ANSWERS`, if the plan keeps them."""


def run_load(plan: LoadPlan) -> tuple[pa.Table, LoadStats]:
    """The records and statistics of `send_load`."""
    sent = send_load(plan)
    return sent.records, sent.stats


def send_load(plan: LoadPlan) -> Sent:
    """Sends a plan's requests.

    Requests that were not sent because `duration_s` was over have no row; `requests_not_sent` counts them. Raises
    `ServelabError` before the first request if the plan cannot be sent, `Outage` if a load process dies.
    """
    requests = prepare(plan)
    processes = process_count(plan, len(requests.first))
    _allow_open_files(plan, len(requests), processes)
    board = Board(processes)
    progress = LoadProgress(board, len(requests))
    # A garbage collection would pause every stream at once; nothing here needs one.
    gc.collect()
    gc.disable()
    try:
        if processes == 1:
            origin, share = send_alone(plan, requests, board, progress)
            shares = [share]
        else:
            origin, shares = send_shared(plan, requests, board, progress, processes)
    finally:
        gc.enable()
    progress.show(last=True)
    records = [record for share in shares for record in share.records]
    wall_s = max((record.end_s for record in records if record.end_s is not None), default=0.0)
    unsent = _unsent(plan, requests, records, board.saturated, wall_s)
    stats = LoadStats(
        processes=processes,
        origin_monotonic_s=origin,
        wall_s=wall_s,
        cpu_s=sum(share.cpu_s for share in shares),
        max_rss_bytes=max_rss_bytes() + (sum(share.max_rss_bytes for share in shares) if processes > 1 else 0),
        unread_p99_ms=_p99(shares),
        requests_resent=sum(share.resent for share in shares),
        requests_not_sent=len(requests) - len(records) - len(unsent),
        saturated=board.saturated,
    )
    everything = records + unsent
    answers = make_answers(plan, requests, everything) if plan.keep_answers else None
    return Sent(make_table(plan, requests, everything), stats, answers)


def _allow_open_files(plan: LoadPlan, requests: int, processes: int) -> None:
    """Raises the limit on open files to the system's maximum, one per request in flight; `ConfigError` if too low."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    in_flight = min(requests, plan.max_concurrency or (requests if plan.request_rate == "inf" else 1))
    needed = -(-in_flight // processes) + _OTHER_FILES
    if most != resource.RLIM_INFINITY and needed > most:
        raise ConfigError(
            f"{in_flight} requests in flight need {needed} open files per process, the system allows {most}: "
            "raise `ulimit -Hn`, lower `max_concurrency` or use more `client_processes`"
        )


def _unsent(plan: LoadPlan, requests: Requests, records: list[Record], saturated: bool, ended_s: float) -> list[Record]:
    """Records of requests that were due but not sent."""
    if saturated:
        error = f"saturated: not sent, {plan.saturation_in_flight} requests were in flight"
    else:
        error = "round_timeout: not sent in time"
    started = {record.request: record.error for record in records}
    if plan.duration_s is not None and not saturated and plan.duration_s <= plan.timeout_s:
        return []
    unsent: list[Record] = []
    for request in range(len(requests)):
        if request not in started:
            is_later = requests.conversations is not None and requests.conversations.is_later(request)
            started[request] = "turn_before: the turn before failed" if is_later and started[request - 1] else error
            unsent.append(Record(request=request, end_s=ended_s, error=started[request]))
    return unsent


def _p99(shares: list[Share]) -> float | None:
    unread_ms = np.concatenate([share.unread_ms for share in shares])
    return float(np.percentile(unread_ms, 99)) if len(unread_ms) else None
