"""Two benches of one load: what changed beyond noise, and what cannot be compared."""

from __future__ import annotations

from dataclasses import dataclass

from servelab.bench.bench_result import Bench
from servelab.metrics.definitions import METRICS
from servelab.metrics.statistics import Interval, ratio_ci95

COMPARED = ("output_tokens_per_s", "total_tokens_per_s", "ttft_ms", "tpot_ms", "e2el_ms")
_ALIKE = 0.02
"""Share by which the mean lengths of prompts and answers may differ: each bench has prompts of its own."""


@dataclass(frozen=True)
class Change:
    """A metric of a load, earlier and now."""

    point: str
    metric: str
    before: Interval
    now: Interval
    change: Interval
    """In percent, with its 95 % interval over the visits of both."""
    is_doubtful: bool
    """Whether a check failed on either side."""

    @property
    def verdict(self) -> str:
        """`better`, `worse`, or `cannot tell` where the interval includes 0 or there is none."""
        low, high = self.change.low, self.change.high
        if low is None or high is None or low <= 0 <= high:
            return "cannot tell"
        return "better" if (low > 0) == METRICS.get(self.metric).higher_is_better else "worse"


def differences(before: Bench, now: Bench) -> list[str]:
    """Why figures of the two are of different loads; empty if they are not."""
    found = []
    if before.asked.model != now.asked.model:
        found.append(f"model {before.asked.model} → {now.asked.model}")
    for name in ("endpoint", "input_tokens", "output_tokens", "is_length_forced", "keep_alive"):
        old, new = getattr(before.load, name), getattr(now.load, name)
        if old != new:
            found.append(f"{name} {old} → {new}")
    for name in ("mean_input_tokens", "mean_output_tokens"):
        old, new = getattr(before.load, name), getattr(now.load, name)
        if abs(new - old) > _ALIKE * old:
            found.append(f"{name} {old:.1f} → {new:.1f}")
    if before.client != now.client:
        found.append(f"load client {before.client} → {now.client}")
    return found


def changes(before: Bench, now: Bench) -> list[Change]:
    """The change of each metric in `COMPARED` of each load that both have, in order of the loads now."""
    known = {point.name: point for point in before.points}
    found = []
    for point in now.points:
        if (earlier := known.get(point.name)) is None:
            continue
        for metric in COMPARED:
            old, new = earlier.visits.get(metric, []), point.visits.get(metric, [])
            if not old or not new or sum(old) <= 0:
                continue
            intervals = [each.interval(metric) for each in (earlier, point)]
            assert intervals[0] is not None and intervals[1] is not None
            doubtful = point.validity != "ok" or earlier.validity != "ok"
            found.append(Change(point.name, metric, intervals[0], intervals[1], ratio_ci95(old, new), doubtful))
    return found
