"""Capacity: the highest load at which a server start meets its limits, found step by step.

Each step is a round at another load. From the lowest load on, the load doubles until a limit is missed; then the
middle (geometric) of the highest load that holds and the lowest that does not is tried, until they are as near as the
study asks. The load that holds is then sent once more, so that luck at one step does not decide.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from pydantic import Field

from servelab.core.files import JsonPart
from servelab.core.run_spec import MOST_STEPS, CapacitySpec, LoadOf
from servelab.metrics.definitions import METRICS, Round
from servelab.metrics.definitions.load import is_open_loop
from servelab.metrics.objective import PERCENTILES
from servelab.metrics.statistics import t_quantile
from servelab.metrics.tables.io import RecordArray, arrived, known, present

QUEUE_GROWS = 0.8
"""A server that serves a smaller share of the rate is saturated; above, a queue may come and go."""

_PIECES = 10
_SETTLED = 0.2
_LONG = 1 / 6
"""A load that lasts less than six requests take may grow a queue all the time at any rate."""
_CONFIDENCE = 0.95
_FEWEST = 40
_SMALL = 0.02
"""A queue that grows by less than this share of the arrivals does not count, however certain it is."""


class Growth(NamedTuple):
    """How the requests in flight grew while requests arrived."""

    share: float
    """Requests by which they grew / requests that arrived meanwhile: 1 − rate served / rate of arrival."""
    is_trend: bool
    """Whether that is more than chance and more than 2 %."""
    latency_share: float
    """Median latency of the first fifth / time from the first arrival to the last, at most 1."""


def queue_growth(every: RecordArray) -> Growth | None:
    """Whether the requests in flight kept growing; `every` are the requests of a round, late ones included.

    Student's test, one-sided at 5 %, on the increases in 10 equal pieces of the time to the last arrival. It begins
    after a fifth of the counted arrivals, or once as long as these take has passed since the first request of all:
    until then the server fills up. It begins half way at the latest. None for fewer than 40 counted requests, or if
    they were not sent over time.
    """
    requests = arrived(every)
    counted = np.sort(requests["scheduled_s"][requests["phase"] != "settle"])
    if len(counted) < _FEWEST or not is_open_loop(requests):
        return None
    due, ended = np.sort(requests["scheduled_s"]), np.sort(present(requests["end_s"]))
    fifth = counted[int(_SETTLED * len(counted))]
    early = requests[(requests["scheduled_s"] >= counted[0]) & (requests["scheduled_s"] <= fifth)]
    took = float(np.median(np.nan_to_num(early["end_s"], nan=np.inf) - early["scheduled_s"]))
    begin = np.clip(due[0] + took, fifth, counted[len(counted) // 2])
    edges = np.linspace(begin, due[-1], _PIECES + 1)
    arrivals = np.searchsorted(due, edges, "right")
    increases = np.diff(arrivals - np.searchsorted(ended, edges, "right"))
    mean, error = float(increases.mean()), float(increases.std(ddof=1)) / _PIECES**0.5
    share = float(increases.sum()) / max(1, int(arrivals[-1] - arrivals[0]))
    is_certain = mean > t_quantile(_CONFIDENCE, _PIECES - 1) * error
    return Growth(share, is_certain and share > _SMALL, min(1.0, took / float(np.ptp(due))))


def is_saturated(every: RecordArray) -> bool:
    """Whether the server could not keep up in a round: by the trend of its queue, or if that cannot be tested, 80 %."""
    growth, share = queue_growth(every), share_served([every])
    return growth.is_trend if growth is not None else share is not None and share < QUEUE_GROWS


def share_served(rounds: Iterable[RecordArray]) -> float | None:
    """Rate at which requests ended over that at which they were due, both from the 10th to the 90th percentile.

    `rounds` are the counted requests of each round. The lowest of the rounds; None if the load was not sent over time.
    """
    shares = []
    for every in rounds:
        requests = arrived(every)
        arrivals, ends = (np.percentile(requests[column], [10, 90]) for column in ("scheduled_s", "end_s"))
        if is_open_loop(requests) and ends[1] > ends[0]:
            shares.append(float((arrivals[1] - arrivals[0]) / (ends[1] - ends[0])))
    return min(shares, default=None)


UNITS: dict[LoadOf, str] = {"max_concurrency": "in flight", "request_rate": "requests/s"}
_TIMES = 2.0
_DIGITS = 4
_SENT = 0.95
"""A client that sends at less than this share of the rate asked is the limit itself."""


class CapacityStep(JsonPart):
    """One step of a search for capacity."""

    load: float = Field(description="Requests/s asked for, or the most requests in flight.")
    requests_per_s: float = Field(description="Requests/s: those that arrived, or with a limit in flight those served.")
    share_of_limit: float | None = Field(
        description="Largest statistic / limit over all SLOs; above 1 one is missed. Null without SLOs or figures."
    )
    missed: str | None = Field(description="What is missed at this load, in words; null if it holds.")
    ended_by: str | None = Field(None, description="`slo`, `errors`, `saturated` or `client`, if something is missed.")

    def text(self, of: LoadOf) -> str:
        """`8 requests/s holds, 0.62 of the limit`; `16 requests/s: ttft_ms p99 is 2140, above 2000`."""
        load = f"{self.load:g} {UNITS[of]}"
        if self.missed is not None:
            return f"{load}: {self.missed}"
        return f"{load} holds" + (f", {self.share_of_limit:.2g} of the limit" if self.share_of_limit else "")


class Capacity(NamedTuple):
    """The result of a search: the load, and the step at which the load that holds was sent last."""

    load: float
    """In the unit of `CapacitySpec.of`, interpolated between the loads that hold and do not."""
    requests_per_s: float
    step: int
    ended_by: str
    """`slo`, `errors`, `saturated`, `client`, or `range` if the highest load holds."""
    text: str
    """Why it ended, in words."""


def judge(spec: CapacitySpec, load: float, every: RecordArray) -> CapacityStep:
    """Whether a load holds, by the requests of its round (of schemas.RUN_REQUESTS)."""
    requests = every[every["phase"] != "settle"]
    data = Round(requests)
    worst, text = _worst(spec, data)
    share = len(data.successes) / len(requests)
    growth = queue_growth(every) if spec.of == "request_rate" else None
    step = CapacityStep(load=load, requests_per_s=_requests_per_s(spec, load, data), share_of_limit=worst, missed=None)
    if spec.of == "request_rate" and _sent_share(requests) < _SENT:
        return _missed(step, "client", f"the client sent {100 * _sent_share(requests):.0f} % of the rate")
    if share < spec.min_success_rate:
        return _missed(step, "errors", f"{100 * share:.4g} % of the requests succeeded")
    if spec.slos and (worst is None or worst > 1):
        return _missed(step, "slo", text)
    if growth is not None and growth.is_trend:
        few = f"; each takes {100 * growth.latency_share:.0f} % of the time: send more"
        text = f"requests in flight grew by {100 * growth.share:.0f} % of all that arrived"
        return _missed(step, "saturated", text + few * (growth.latency_share > _LONG))
    return step


def next_load(spec: CapacitySpec, steps: Sequence[CapacityStep]) -> float | None:
    """The load of the next step; None if the search has ended."""
    if not steps:
        return spec.lowest
    holds, misses = _bracket(steps)
    if holds is None or len(steps) >= MOST_STEPS:
        return None
    if misses is None:
        return None if holds >= spec.highest else min(_TIMES * holds, spec.highest)
    if misses <= holds * (1 + spec.within_percent / 100) or (spec.of == "max_concurrency" and misses - holds <= 1):
        return holds if sum(step.load == holds for step in steps) < 2 else None
    between = math.sqrt(holds * misses)
    if spec.of == "max_concurrency":  # whole requests, and never a load that was tried
        return float(min(max(round(between), holds + 1), misses - 1))
    return float(f"{between:.{_DIGITS}g}")


def find_capacity(spec: CapacitySpec, steps: Sequence[CapacityStep]) -> Capacity | None:
    """The capacity by the steps of a search that has ended; None if its first load does not hold."""
    holds, misses = _bracket(steps)
    if holds is None:
        return None
    step = max(number for number, each in enumerate(steps) if each.load == holds)
    below = [each for each in steps if each.load == holds]
    if misses is None:
        text = f"{spec.highest:g} {UNITS[spec.of]}, the highest load that is tried, holds"
        return Capacity(holds, below[-1].requests_per_s, step, "range", text)
    above = [each for each in steps if each.load == misses]
    why = next(each for each in above if each.missed is not None)
    share = _share_between(below, above)
    load = holds * (misses / holds) ** share
    rates = [float(np.mean([each.requests_per_s for each in side])) for side in (below, above)]
    rate = rates[0] * (max(rates[1], rates[0]) / rates[0]) ** share if rates[0] > 0 else 0.0
    return Capacity(load, rate, step, str(why.ended_by), f"at {misses:g} {UNITS[spec.of]} {why.missed}")


def capacity_values(spec: CapacitySpec | None, steps: Sequence[CapacityStep]) -> dict[str, float]:
    """Metric → its value, of a run that searched for its capacity and found one."""
    found = None if spec is None else find_capacity(spec, steps)
    if spec is None or found is None:
        return {}
    in_flight = {"capacity_in_flight": found.load} if spec.of == "max_concurrency" else {}
    return {"capacity_per_s": found.requests_per_s, **in_flight}


def _missed(step: CapacityStep, ended_by: str, text: str) -> CapacityStep:
    return step.model_copy(update={"missed": text, "ended_by": ended_by})


def _bracket(steps: Sequence[CapacityStep]) -> tuple[float | None, float | None]:
    """The highest load that holds whenever it was sent, below all that do not, and the lowest that does not."""
    misses = min((step.load for step in steps if step.missed is not None), default=None)
    holds = max((step.load for step in steps if misses is None or step.load < misses), default=None)
    return holds, misses


def _share_between(below: Sequence[CapacityStep], above: Sequence[CapacityStep]) -> float:
    """Where between the two loads, on a logarithmic scale, the nearest limit is reached; half way if unknown."""
    low, high = ([math.log(each.share_of_limit) for each in side if each.share_of_limit] for side in (below, above))
    if not low or not high:
        return 0.5
    a, b = float(np.mean(low)), float(np.mean(high))
    return min(1.0, -a / (b - a)) if a < 0 < b else 0.5


def _worst(spec: CapacitySpec, data: Round) -> tuple[float | None, str]:
    """The largest share of a limit that is reached, and which; without figures of a limited metric, infinity."""
    found: list[tuple[float, str]] = []
    for tag, limits in spec.slos.items():
        metric, values = METRICS.get(tag), METRICS.get(tag).observe(data)
        for statistic, limit in limits.items():
            if not len(values):
                return None, f"{tag} has no figures"
            at = {**PERCENTILES, "minimum": 0.0, "maximum": 1.0}.get(statistic)
            value = float(values.mean() if at is None else np.quantile(values, at))
            share = limit / value if metric.higher_is_better else value / limit
            side = "below" if metric.higher_is_better else "above"
            found.append((share, f"{tag} {statistic} is {value:.4g}, {side} {limit:g}"))
    return max(found, default=(None, ""))


def _requests_per_s(spec: CapacitySpec, load: float, data: Round) -> float:
    """The rate at which requests were due (the drawn one, not the one asked for), or that at which they were served."""
    name = "request_rate_asked_per_s" if spec.of == "request_rate" else "requests_per_s"
    values = METRICS.get(name).observe(data)
    return float(values[0]) if len(values) else load


def _sent_share(requests: RecordArray) -> float:
    """Rate at which the client began requests over that at which they were due."""
    rows = known(arrived(requests), "scheduled_s", "started_s")
    took = float(np.ptp(rows["started_s"])) if len(rows) > 1 else 0.0
    return float(np.ptp(rows["scheduled_s"])) / took if took else 1.0
