"""Was the client fast enough to send this load and to take its times?"""

from __future__ import annotations

import numpy as np

from servelab.metrics.tables.record_array import Floats, RecordArray, by_round, known
from servelab.results.checks import Evidence, Saw, check, not_applicable, ok, suspect

_DELAY_MS = 10.0
_DELAY_SHARE = 0.02
_CPU_SHARE = 0.8
_SHORT_S = 1.0
_UNREAD_MS = 50.0


@check(
    "schedule_delay",
    looks_at="How late requests started: after their arrival time or, at the concurrency limit, after a request ended.",
    rule="the 99th percentile is above 10 ms and above 2 % of the mean end-to-end latency. The first requests of a "
    "load that starts all at once are not counted.",
    why="A late client lowers the load without showing it. 10 ms is a common bound; it matters little for answers "
    "that take seconds.",
    fails_as=("suspect",),
    action="Raise `client_processes`, or reserve cores for the client.",
)
def _schedule_delay(evidence: Evidence) -> Saw:
    limit = evidence.spec.protocol.max_concurrency
    delays = [_delays_ms(requests, limit) for requests in by_round(evidence.records).values()]
    pooled = np.concatenate([np.empty(0), *delays])
    if not pooled.size:
        return not_applicable("all requests were due at once")
    p99, mean = float(np.percentile(pooled, 99)), evidence.mean("e2el_ms") or 0.0
    text = f"requests started {p99:.3g} ms late (99th percentile)"
    return suspect(text) if p99 > max(_DELAY_MS, _DELAY_SHARE * mean) else ok(text)


@check(
    "client_cpu",
    looks_at="CPU time of the client's processes over the time of the load, in rounds of a second or more.",
    rule="above 80 % of a core per process in any round.",
    why="A process that needs nearly a full core reads answers late, so its times are late.",
    fails_as=("suspect",),
    action="Raise `client_processes`.",
)
def _client_cpu(evidence: Evidence) -> Saw:
    shares = [
        stats.cpu_s / stats.wall_s / stats.processes
        for stats in evidence.client
        if stats.cpu_s is not None and stats.wall_s is not None and stats.wall_s >= _SHORT_S
    ]
    if not shares:
        return not_applicable("the client does not report its CPU time, or no round took a second")
    text = f"the client used {100 * max(shares):.0f} % of a core per process"
    return suspect(text) if max(shares) > _CPU_SHARE else ok(text)


@check(
    "client_lag",
    looks_at="How long parts of the answers waited in the kernel before the client read them (the lag of its event "
    "loop).",
    rule="the 99th percentile is above 50 ms and above the mean inter-token latency in any round.",
    why="A client that is a token behind falls further behind: it sends the next request late, and unread answers "
    "slow the server. The times are still correct if they come from the kernel's timestamps.",
    fails_as=("suspect",),
    action="Raise `client_processes`, or reserve cores for the client.",
)
def _client_lag(evidence: Evidence) -> Saw:
    lags = [stats.unread_p99_ms for stats in evidence.client if stats.unread_p99_ms is not None]
    if not lags:
        return not_applicable("the client does not report it")
    text = f"answers lay unread for {max(lags):.3g} ms (99th percentile)"
    return suspect(text) if max(lags) > max(_UNREAD_MS, evidence.mean("itl_ms") or 0.0) else ok(text)


def _delays_ms(requests: RecordArray, limit: int | None) -> Floats:
    """How late each request of a round started, without those due at the round's zero.

    The k-th to start is due at its arrival time or, with `limit`, once k + 1 − limit requests have ended.
    """
    requests = requests.copy()
    unknown = np.isnan(requests["started_s"])
    requests["started_s"][unknown] = requests["sent_s"][unknown]
    requests = known(requests, "started_s")
    requests = requests[np.argsort(requests["started_s"], kind="stable")]
    due = requests["scheduled_s"]
    if limit is not None and len(requests) > limit:
        due[limit:] = np.maximum(due[limit:], np.sort(requests["end_s"])[: len(requests) - limit])
    late: Floats = 1000 * (requests["started_s"] - due)
    return np.maximum(late[due > 0], 0.0)
