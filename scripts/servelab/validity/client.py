"""Was the client fast enough to put this load on and to stamp its times?"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from servelab.validity import Evidence, Saw, check, not_applicable, ok, suspect

_DELAY_MS = 10.0
_DELAY_SHARE = 0.02
_CPU_SHARE = 0.8
_SHORT_S = 1.0
_UNREAD_MS = 50.0


@check(
    "schedule_delay",
    looks_at="How late requests started: after their arrival time or, at the limit, after a request ended and made "
    "room.",
    rule="the 99th percentile is above 10 ms and above 2 % of the mean end-to-end latency. The first requests of a "
    "load that starts all at once do not count.",
    why="A client that is late throttles the load and hides it. 10 ms is a usual bound; against answers that take "
    "seconds it matters little.",
    fails_as=("suspect",),
    action="Raise `client_processes`, or give the client cores of its own.",
)
def _schedule_delay(evidence: Evidence) -> Saw:
    limit = evidence.spec.protocol.max_concurrency
    delays = [_delays_ms(frame, limit) for _, frame in evidence.records.groupby("round")]
    pooled = np.concatenate([np.empty(0), *delays])
    if not pooled.size:
        return not_applicable("every request was to be sent at once")
    p99, mean = float(np.percentile(pooled, 99)), evidence.mean("e2el_ms") or 0.0
    text = f"requests started {p99:.3g} ms late (99th percentile)"
    return suspect(text) if p99 > max(_DELAY_MS, _DELAY_SHARE * mean) else ok(text)


@check(
    "client_cpu",
    looks_at="CPU time of the client's processes over the time of the load, in rounds of a second or more.",
    rule="above 80 % of a core a process in any round.",
    why="A process near a full core queues what it has to read, and its times are late.",
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
        return not_applicable("the client does not tell its CPU time, or no round took a second")
    text = f"the client used {100 * max(shares):.0f} % of a core a process"
    return suspect(text) if max(shares) > _CPU_SHARE else ok(text)


@check(
    "client_lag",
    looks_at="How long pieces of the answers lay in the kernel before the client read them (the lag of its event "
    "loop).",
    rule="the 99th percentile is above 50 ms and above the mean inter-token latency in any round.",
    why="A client that is a token behind falls further behind: it sends the next request late, and answers that fill "
    "the socket slow the server. Where the kernel stamps what arrives, the times themselves are right all the same.",
    fails_as=("suspect",),
    action="Raise `client_processes`, or give the client cores of its own.",
)
def _client_lag(evidence: Evidence) -> Saw:
    lags = [stats.unread_p99_ms for stats in evidence.client if stats.unread_p99_ms is not None]
    if not lags:
        return not_applicable("the client does not tell")
    text = f"answers lay unread for {max(lags):.3g} ms (99th percentile)"
    return suspect(text) if max(lags) > max(_UNREAD_MS, evidence.mean("itl_ms") or 0.0) else ok(text)


def _delays_ms(frame: pd.DataFrame, limit: int | None) -> npt.NDArray[np.float64]:
    """How late each request of a round started, those due at the round's zero left out.

    The k-th to start is due at its arrival time or, with `limit`, once k + 1 − limit requests have ended.
    """
    started = frame["started_s"].fillna(frame["sent_s"])
    frame = frame.assign(started=started).dropna(subset=["started"]).sort_values("started")
    due = frame["scheduled_s"].to_numpy(dtype=np.float64)
    if limit is not None and len(frame) > limit:
        due = due.copy()
        due[limit:] = np.maximum(due[limit:], np.sort(frame["end_s"])[: len(frame) - limit])
    late: npt.NDArray[np.float64] = 1000 * (frame["started"].to_numpy() - due)
    return np.maximum(late[due > 0], 0.0)
