"""Checks whether the load can show what the objective asks for: latencies need requests that arrive at a rate."""

from __future__ import annotations

from collections.abc import Iterator

from servelab.metrics.definitions import METRICS
from servelab.search.preflight import CHECKS, Check, Finding
from servelab.search.preflight.place import Place
from servelab.study.study import Study

_AT_ONCE = "at rate `inf` without `max_concurrency` all requests are sent at once: {} then measures the queue"
_IN_TURN = (
    "at rate `inf` the next request is sent when one ends, so a slow server gets less load: {} depends on "
    "`max_concurrency`, not on users who arrive"
)
_ACTION = "set `request_rate` (of `protocol` or of the workload) to the rate of your users, or `arrivals: replay`"


def look(place: Place) -> Iterator[Finding]:
    """One finding for the study."""
    yield judge(place.project.study)


def judge(study: Study) -> Finding:
    """A warning if latencies or SLOs decide at rate `inf`.

    With `max_concurrency`, a limit on a latency is one at that concurrency: only the objective and SLOs are looked at.
    """
    of, protocol = f"objective on {study.objective.on}", study.protocol_of(study.objective.on)
    if protocol.request_rate != "inf" or protocol.arrivals == "replay":
        return Finding(of, "ok", "requests arrive at a rate of their own")
    limited = protocol.max_concurrency is not None
    metrics = {study.objective.metric: METRICS.get(study.objective.metric)}
    metrics |= {tag: METRICS.get(tag) for tag in study.objective.constraints}
    affected = [
        tag
        for tag, metric in metrics.items()
        if metric.needs_slos or (metric.is_latency and (tag == study.objective.metric or not limited))
    ]
    if study.search.stop_when.slo_reached is not None and "slo_attainment" not in affected:
        affected.append("slo_attainment")
    if affected:
        return Finding(of, "warning", (_IN_TURN if limited else _AT_ONCE).format(" and ".join(affected)), _ACTION)
    return Finding(of, "ok", "neither latencies nor SLOs depend on a rate that is not set")


CHECKS.register("load", Check("load", "whether latencies and SLOs are asked for at a request rate", look))
