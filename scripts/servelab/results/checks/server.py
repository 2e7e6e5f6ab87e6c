"""Did one server, with empty caches, run for the whole round?"""

from __future__ import annotations

import numpy as np

from servelab.assets.workloads import WORKLOADS
from servelab.metrics.definitions.telemetry import cached_share
from servelab.metrics.tables.io import Floats, RecordArray, by_round, known, maximum, minimum
from servelab.results.checks import Evidence, Saw, check, invalid, not_applicable, ok, suspect
from servelab.results.physical_limit import PhysicalLimit

_SAME_START_S = 1.0
_HITS = 0.1


@check("server_restarted")
def _server_restarted(evidence: Evidence) -> Saw:
    starts, rounds = evidence.server_starts, evidence.loads_sent or len(by_round(evidence.records))
    born = {n: samples["value"] for n, samples in by_round(evidence.samples("process_start_unix_s")).items()}
    if not rounds or (starts is None and not born):
        return not_applicable("neither the server's starts nor its process's start time are known")
    moved = [number for number, times in born.items() if maximum(times) - minimum(times) > _SAME_START_S]
    if moved:
        return invalid(f"the server was restarted within round {moved[0]}")
    if starts is not None and starts > rounds:
        return invalid(f"{starts} starts of the server for {rounds} rounds")
    return ok(f"no restart within a round{'' if starts is None else f'; {starts} starts for {rounds} rounds'}")


@check("cache_hits")
def _cache_hits(evidence: Evidence) -> Saw:
    shares = _hit_shares(evidence)
    if not shares:
        return not_applicable("the server does not report its cache hits")
    low, high = min(shares.values()), max(shares.values())
    text = f"{100 * high:.0f} % of the prompts' tokens came from a cache, without the chat template"
    if high - low > _HITS:
        return invalid(f"{text}, in another round {100 * low:.0f} %")
    workload = evidence.spec.workload
    shared = WORKLOADS.get(workload.kind).shared_input(workload.parameters)
    if shared is None:
        return ok(f"{text}; its prompts may share text")
    if high > shared + _HITS:
        return suspect(text if not shared else f"{text}, where its prompts share {100 * shared:.0f} %")
    return ok(text if not shared else f"{text}; its prompts share {100 * shared:.0f} %")


def _hit_shares(evidence: Evidence) -> dict[int, float]:
    """Share of each round's prompt tokens that came from a cache, without the template."""
    shares: dict[int, float] = {}
    for number, done in by_round(known(evidence.successes, "input_tokens", "input_tokens_asked")).items():
        share = cached_share(done, evidence.telemetry[evidence.telemetry["round"] == number])
        if share is not None:
            tokens, asked = float(done["input_tokens"].sum()), float(done["input_tokens_asked"].sum())
            shares[number] = max(0.0, share - (max(0.0, 1 - asked / tokens) if tokens else 0.0))
    return shares


def judge(limit: PhysicalLimit) -> Saw:
    """Result of the check, for measured runs and for logs."""
    if limit.share is None or limit.highest_share is None or limit.certain_share is None:
        return not_applicable(limit.note)
    text = f"{100 * limit.highest_share:.2g} % of what the devices can do: {limit.note}"
    if limit.certain_share > 1:
        return invalid(text)
    return suspect(text) if limit.highest_share > 1 else ok(text)


@check("above_physical_limit")
def _above_physical_limit(evidence: Evidence) -> Saw:
    return judge(evidence.limit)


_DELAY_MS = 10.0
_DELAY_SHARE = 0.02
_CPU_SHARE = 0.8
_SHORT_S = 1.0
_UNREAD_MS = 50.0


@check("schedule_delay")
def _schedule_delay(evidence: Evidence) -> Saw:
    limit = evidence.spec.protocol.max_concurrency
    delays = [_delays_ms(requests, limit) for requests in by_round(evidence.records).values()]
    pooled = np.concatenate([np.empty(0), *delays])
    if not pooled.size:
        return not_applicable("all requests were due at once")
    p99, mean = float(np.percentile(pooled, 99)), evidence.mean("e2el_ms") or 0.0
    text = f"requests started {p99:.3g} ms late (99th percentile)"
    return suspect(text) if p99 > max(_DELAY_MS, _DELAY_SHARE * mean) else ok(text)


@check("client_cpu")
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


@check("client_lag")
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
