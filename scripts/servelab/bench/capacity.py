"""The capacity of a server that already runs: searched once in each visit, with new prompts at each step."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from pydantic import Field, ValidationError

from servelab.bench.load import Accepted, Point, Target, send_point
from servelab.core.errors import ConfigError
from servelab.core.files import JsonPart
from servelab.core.registry import nearest
from servelab.core.run_spec import CapacitySpec, LoadOf
from servelab.metrics.capacity import UNITS, CapacityStep, find_capacity, judge, next_load
from servelab.metrics.definitions import slo_metrics
from servelab.metrics.statistics import Interval, mean_ci95
from servelab.metrics.tables.record_array import record_array

RAISED: dict[str, LoadOf] = {"concurrency": "max_concurrency", "rate": "request_rate"}
"""Word of the command line → what a search raises."""


class SearchedVisit(JsonPart):
    """The search of one visit."""

    steps: list[CapacityStep]
    load: float | None = Field(
        description="Capacity, in requests/s or in flight; null if the lowest load does not hold."
    )
    requests_per_s: float | None = Field(description="Requests/s at that load.")
    ended: str = Field(description="What ended the search, in words.")


class SearchedCapacity(JsonPart):
    """`capacity` of `bench.json`."""

    spec: CapacitySpec
    requests: int = Field(description="Requests of a step.")
    visits: list[SearchedVisit]

    def interval(self, of: str = "load") -> Interval | None:
        """Mean and 95 % interval over visits; None if a visit found no capacity."""
        values = [getattr(visit, of) for visit in self.visits]
        return None if None in values else mean_ci95(values)

    @property
    def limits(self) -> str:
        """`ttft_ms p90 at most 500`; empty without limits."""
        limits = [(metric, *each) for metric, of in self.spec.slos.items() for each in of.items()]
        return ", ".join(f"{metric} {statistic} at most {limit:g}" for metric, statistic, limit in limits)


def searched_spec(raised: str, slos: list[list[str]], lowest: float) -> CapacitySpec:
    """The search that the command line asks for; `ConfigError` if it cannot be."""
    limits: dict[str, dict[str, float]] = {}
    for metric, statistic, limit in slos:
        if metric not in slo_metrics():
            raise ConfigError(f"--slo {metric}: no metric of single requests{nearest(metric, slo_metrics())}")
        try:
            limits.setdefault(metric, {})[statistic] = float(limit)
        except ValueError:
            raise ConfigError(f"--slo {metric} {statistic}: {limit!r} is no number") from None
    try:
        return CapacitySpec(of=RAISED[raised], lowest=lowest, slos=limits)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        text = first["msg"].removeprefix("Value error, ").replace("`slos`", "`--slo METRIC STATISTIC LIMIT`")
        raise ConfigError(f"--capacity {raised}: {key}{': ' if key else ''}{text}") from None


def search_visit(
    target: Target,
    accepted: Accepted,
    spec: CapacitySpec,
    *,
    visit: int,
    requests: int,
    seed: int,
    input_tokens: int,
    warmup: int,
    say: Callable[[str], None],
) -> tuple[SearchedVisit, list[pa.Table]]:
    """The search of a visit, and the records of its steps. Errors as of `send_point`."""
    steps: list[CapacityStep] = []
    tables: list[pa.Table] = []
    while (load := next_load(spec, steps)) is not None:
        in_flight = int(load) if spec.of == "max_concurrency" else None
        point = Point(in_flight, None if in_flight else load, requests)
        number = seed + len(steps)
        result = send_point(target, accepted, point, visit=visit, seed=number, input_tokens=input_tokens, warmup=warmup)
        tables.append(result.records)
        steps.append(judge(spec, load, record_array(result.records)))
        say(f"  {steps[-1].text(spec.of)}")
    found = find_capacity(spec, steps)
    if found is None:
        ended = f"the lowest load does not hold: {steps[-1].text(spec.of)}"
        return SearchedVisit(steps=steps, load=None, requests_per_s=None, ended=ended), tables
    return SearchedVisit(steps=steps, load=found.load, requests_per_s=found.requests_per_s, ended=found.text), tables


def capacity_words(found: SearchedCapacity) -> str:
    """One line: the capacity over visits, its limits, and what ended the search last."""
    interval, unit = found.interval(), UNITS[found.spec.of]
    limits = f" with {found.limits}" if found.limits else ""
    if interval is None:
        ended = next(visit.ended for visit in found.visits if visit.load is None)
        return f"No capacity{limits}: {ended}."
    spread = "" if interval.low is None else f" (95 % interval {interval.low:.3g} to {interval.high:.3g})"
    return f"It sustains {interval.value:.3g} {unit}{spread}{limits}: {found.visits[-1].ended}."
