"""Metrics: one definition each, computed from the raw records of a run.

Definitions follow `calculate_metrics` of vLLM's `vllm bench serve`. A metric function returns the
observations of one round: one per round for a rate, one per request (or token, or gap) for a latency. To add a metric,
describe it in `metrics.yaml` and register a function in a module of this package.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from statistics import fmean
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from servelab.core.registry import Registry
from servelab.core.yaml_file import read_shipped
from servelab.metrics.tables import schemas
from servelab.metrics.tables.io import (
    RecordArray,
    by_round,
    known,
    maximum,
    minimum,
    present,
    record_array,
    succeeded,
)
from servelab.metrics.timeline import InFlight, TokenEvents, in_flight, output_token_events

Observations = npt.NDArray[np.float64]


@dataclass(frozen=True)
class RunData:
    """The input of a run's metrics."""

    records: pa.Table
    """`schemas.RUN_REQUESTS`."""
    slos: Mapping[str, float] = field(default_factory=dict)
    """Metric → the highest value with which a request counts as good."""
    telemetry: pa.Table | None = None
    """`schemas.TELEMETRY`."""
    price_per_hour: float | None = None
    """Cost of all accelerators of the run per hour; None if the study has no price."""
    capacity: Mapping[str, float] = field(default_factory=dict)
    """Metric → what a search for capacity found (`servelab.metrics.capacity`); empty for one load."""

    @cached_property
    def requests(self) -> RecordArray:
        """The rows of `records`."""
        return record_array(self.records)

    @cached_property
    def samples(self) -> RecordArray:
        """The rows of `telemetry`; empty if none was recorded."""
        return record_array(schemas.TELEMETRY.empty_table() if self.telemetry is None else self.telemetry)

    @cached_property
    def rounds(self) -> dict[int, Round]:
        """The rounds by number, in order."""
        counted, telemetry = self.requests[self.requests["phase"] != "settle"], self.samples
        return {
            each: Round(requests, self.slos, telemetry[telemetry["round"] == each], self.price_per_hour, self.capacity)
            for each, requests in by_round(counted).items()
        }

    @cached_property
    def observations(self) -> dict[str, dict[int, Observations]]:
        """Observations of each metric in each round; cached, because two tables use them."""
        return {
            metric.tag: {number: metric.observe(data) for number, data in self.rounds.items()} for metric in METRICS
        }


@dataclass(frozen=True, eq=False)
class Round:
    """One round of a run; compared by identity, so that results computed from it can be cached."""

    requests: RecordArray
    """The counted rows of `RUN_REQUESTS`: without those of the settle phase."""
    slos: Mapping[str, float] = field(default_factory=dict)
    telemetry: RecordArray = field(default_factory=lambda: record_array(schemas.TELEMETRY.empty_table()))
    """The round's rows of `TELEMETRY`; empty if none was recorded."""
    price_per_hour: float | None = None
    capacity: Mapping[str, float] = field(default_factory=dict)

    @cached_property
    def successes(self) -> RecordArray:
        """Requests without an error."""
        return succeeded(self.requests)

    @cached_property
    def streamed(self) -> RecordArray:
        """Successful requests with at least one event with content; the others have no times."""
        return known(self.successes, "first_token_s")

    @cached_property
    def start_s(self) -> float:
        """The first send; if none was sent, the first scheduled time."""
        sent = minimum(self.requests["sent_s"])
        return minimum(self.requests["scheduled_s"]) if np.isnan(sent) else sent

    @cached_property
    def duration_s(self) -> float:
        """Seconds from the first send until every request has ended, failed ones included."""
        return maximum(self.requests["end_s"]) - self.start_s

    @cached_property
    def output_tokens(self) -> float:
        """Output tokens of the successful requests."""
        return float(np.nansum(self.successes["output_tokens"]))

    @cached_property
    def tokens(self) -> float:
        """Input and output tokens of the successful requests."""
        return float(np.nansum(self.successes["input_tokens"])) + self.output_tokens

    @cached_property
    def in_flight(self) -> InFlight:
        """Requests in flight, failed ones included."""
        return in_flight(self.requests["sent_s"], self.requests["end_s"])

    @cached_property
    def output_token_events(self) -> TokenEvents:
        """Output tokens of the successful requests by the time they arrived."""
        return output_token_events(self.successes)


Observe = Callable[[Round], Observations]
OfRequests = Callable[[RecordArray], Observations]


@dataclass(frozen=True)
class Metric:
    """The meaning of a figure, and how it is computed."""

    tag: str
    """Its name in every table, the unit last."""
    unit: str
    formula: str
    observe: Observe
    """Observations of one round."""
    equals: str = ""
    """The tool that uses the same definition, if there is one."""
    higher_is_better: bool | None = None
    """None if the metric only describes a run: it can be no objective and has no improvement."""
    is_rate: bool = False
    """An amount served per second, which can be divided by accelerators or multiplied to fill a node."""
    needs_slos: bool = False
    """It counts requests that meet the study's SLOs; no observation without SLOs."""
    needs_price: bool = False
    """It needs the price of an accelerator-hour; no observation without it."""
    measured_as: str | None = None
    """The metric whose interval decides how many rounds a run with this objective takes. The two differ by a factor
    that is not part of a run, so a new price reruns nothing."""
    based_on: Sequence[str] = ()
    """Metrics this one is computed from: if a client defines one of them differently, this one differs too."""
    of_requests: OfRequests | None = None
    """Value of each request that streamed, NaN if it has none. Only such a metric can have an SLO."""

    @property
    def is_latency(self) -> bool:
        """Whether a round has many observations, one per request, token or gap; of other metrics it has one at most."""
        return self.unit == "milliseconds"


METRICS: Registry[Metric] = Registry("metric")
_DESCRIBED: dict[str, dict[str, Any]] = read_shipped(Path(__file__).with_name("metrics.yaml"))
_SPREAD = ("std", "minimum", "median", "p90", "p95", "p99", "maximum")


def metric(tag: str, of_requests: OfRequests | None = None) -> Callable[[Observe], Metric]:
    """Registers the decorated function as a metric, with what `metrics.yaml` says of it."""
    described = dict(_DESCRIBED[tag])
    described["higher_is_better"] = {"higher": True, "lower": False}.get(described.pop("better", ""))
    return lambda observe: METRICS.register(tag, Metric(tag=tag, observe=observe, of_requests=of_requests, **described))


def request_metric(tag: str) -> Callable[[OfRequests], OfRequests]:
    """Registers the decorated function, which returns a latency of each request in milliseconds, as a metric."""

    def register(of_requests: OfRequests) -> OfRequests:
        metric(tag, of_requests)(lambda data: present(of_requests(data.streamed)))
        return of_requests

    return register


def round_metrics(values: Mapping[str, Callable[[Round], float | None]]) -> None:
    """Registers metrics that have one value a round, by their names; a value of None is no observation."""
    for tag, value in values.items():
        metric(tag)(partial(_observed, value))


def _observed(value: Callable[[Round], float | None], data: Round) -> Observations:
    found = value(data)
    return np.array([] if found is None else [found], dtype=float)


def slo_metrics() -> list[str]:
    """Metrics that can have an SLO: those of single requests."""
    return [each.tag for each in METRICS if each.of_requests is not None]


def round_values(run: RunData, tag: str) -> list[float]:
    """A metric's mean in each round, in order of rounds, without rounds that have no observation.

    Raises `ConfigError` on an unknown metric.
    """
    return _round_means([METRICS.get(tag).observe(data) for data in run.rounds.values()])


def summarise(run: RunData, definitions: Mapping[str, str] = MappingProxyType({})) -> list[dict[str, Any]]:
    """A row of `schemas.METRICS` for each metric, without study, run_id and workload.

    The mean is that of the rounds' means; spread and percentiles are over the observations of all rounds. There is no
    interval: a run is one server start, and the scatter of its rounds says nothing about other starts. A metric without
    observation has n = 0 and nulls. `definitions` describes how the client that made the records defines metrics
    differently (`Client.definitions`); `ConfigError` on an unknown metric in it.
    """
    for tag in definitions:
        METRICS.get(tag)
    rows = []
    for metric in METRICS:
        rounds = list(run.observations[metric.tag].values())
        values, means = np.concatenate([[], *rounds]), _round_means(rounds)
        tags = (metric.tag, *metric.based_on)
        rows.append(
            {
                "metric": metric.tag,
                "definition": next((definitions[tag] for tag in tags if tag in definitions), None),
                "n": values.size,
                "mean": fmean(means) if means else None,
                **_spread(values),
                "rounds": len(means),
            }
        )
    return rows


def summarise_rounds(run: RunData) -> list[dict[str, Any]]:
    """A row of `schemas.ROUNDS` for each metric and round with an observation, without study, run_id and workload."""
    rows = []
    for number in run.rounds:
        for metric in METRICS:
            values = run.observations[metric.tag][number]
            if values.size:
                rows.append({"metric": metric.tag, "round": number, "value": float(values.mean())})
    return rows


def render_docs() -> str:
    """The text of docs/reference/metrics.md up to the rates of devices."""
    better = {True: "higher is better", False: "lower is better", None: "no direction"}
    lines = [
        f"- `{entry.tag}` ({entry.unit}, {better[entry.higher_is_better]}): {entry.formula}"
        f"{f'. Equals {entry.equals}' if entry.equals else ''}"
        for entry in METRICS
    ]
    page = Path(__file__).with_name("metrics_page.md").read_text(encoding="utf-8")
    limited = ", ".join(f"`{tag}`" for tag in slo_metrics())
    return page.replace("SLO_METRICS", limited).replace("METRIC_LINES", "\n".join(lines))


def _round_means(rounds: list[Observations]) -> list[float]:
    return [float(values.mean()) for values in rounds if values.size]


def _spread(values: Observations) -> dict[str, float | None]:
    if not values.size:
        return dict.fromkeys(_SPREAD)
    percentiles = np.percentile(values, [50, 90, 95, 99])
    return dict(zip(_SPREAD, map(float, (values.std(), values.min(), *percentiles, values.max())), strict=True))


METRICS.load(__name__)
