"""Metrics: one definition each, computed from the records of a run (`schemas.RUN_REQUESTS`) and nothing else.

Definitions follow `calculate_metrics` of vLLM's `vllm bench serve`. A metric gives the observations of one round: a
rate is one observation a round, a latency one a request (or token, or gap). A new metric is a function registered in
a module beside this one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from servelab import schemas
from servelab.registry import Registry
from servelab.statistics import mean_ci95
from servelab.timeline import TokenEvents, output_token_events

Observations = npt.NDArray[np.float64]


@dataclass(frozen=True)
class RunData:
    """What the metrics of a run are computed from."""

    records: pa.Table
    """`schemas.RUN_REQUESTS`."""
    slos: Mapping[str, float] = field(default_factory=dict)
    """Metric → most it may be for a request to count as good."""
    telemetry: pa.Table | None = None
    """`schemas.TELEMETRY`."""
    price_per_hour: float | None = None
    """What all accelerators of the run cost an hour; None where the study names no price."""

    @cached_property
    def rounds(self) -> dict[int, Round]:
        """The rounds by number, in order."""
        records = self.records.to_pandas()
        records = records[records["phase"] != "settle"]
        telemetry = (schemas.TELEMETRY.empty_table() if self.telemetry is None else self.telemetry).to_pandas()
        return {
            int(number): Round(frame, self.slos, telemetry[telemetry["round"] == number], self.price_per_hour)
            for number, frame in records.groupby("round", sort=True)
        }

    @cached_property
    def observations(self) -> dict[str, dict[int, Observations]]:
        """Observations of each metric in each round; computed once, for two tables are made of them."""
        return {
            metric.tag: {number: metric.observe(data) for number, data in self.rounds.items()} for metric in METRICS
        }


@dataclass(frozen=True, eq=False)
class Round:
    """One round of a run; equal to itself alone, so that what is computed of it can be kept."""

    requests: pd.DataFrame
    """The counted rows of `RUN_REQUESTS`: those of the settle phase are not among them."""
    slos: Mapping[str, float]
    telemetry: pd.DataFrame
    """The round's rows of `TELEMETRY`; empty where none was taken."""
    price_per_hour: float | None = None

    @cached_property
    def successes(self) -> pd.DataFrame:
        """Requests without an error."""
        return self.requests[self.requests.error.isna()]

    @cached_property
    def streamed(self) -> pd.DataFrame:
        """Successful requests with an event that carries content: without one there is nothing to time."""
        return self.successes[self.successes.first_token_s.notna()]

    @cached_property
    def start_s(self) -> float:
        """The first send; where none could be sent, the first that was scheduled."""
        sent = float(self.requests.sent_s.min())
        return float(self.requests.scheduled_s.min()) if np.isnan(sent) else sent

    @cached_property
    def duration_s(self) -> float:
        """Seconds from the first send until every request has ended, failed ones included."""
        return float(self.requests.end_s.max()) - self.start_s

    @cached_property
    def output_token_events(self) -> TokenEvents:
        """Output tokens of the successful requests by the time they arrived."""
        return output_token_events(self.successes)


Observe = Callable[[Round], Observations]
OfRequests = Callable[[pd.DataFrame], "pd.Series[float]"]


@dataclass(frozen=True)
class Metric:
    """What a figure means, and how it is computed."""

    tag: str
    """Its name in every table, the unit last."""
    title: str
    unit: str
    formula: str
    equals: str
    """The tool whose definition it equals."""
    higher_is_better: bool | None
    """None for what describes a run and is no merit: such a metric is no objective and has no improvement."""
    observe: Observe
    """Observations of one round."""
    is_rate: bool = False
    """An amount served per second: what may be divided by accelerators or multiplied to fill a node."""
    needs_slos: bool = False
    """It counts requests that meet the study's SLOs, and has no observation without any."""
    needs_price: bool = False
    """It needs the price of an accelerator-hour, and has no observation without one."""
    measured_as: str | None = None
    """The metric whose interval ends the rounds of a run that is measured for this one: it says the same but for a
    factor that is no part of a run, so that another price reruns nothing."""
    based_on: tuple[str, ...] = ()
    """Metrics whose definition is part of this one's: where a client defines one of them otherwise, this one too."""
    of_requests: OfRequests | None = None
    """Value of each request that streamed, NaN where it has none. Only such a metric can have an SLO."""


METRICS: Registry[Metric] = Registry("metric")


def metric(
    tag: str,
    *,
    title: str,
    unit: str,
    formula: str,
    equals: str,
    higher_is_better: bool | None,
    is_rate: bool = False,
    needs_slos: bool = False,
    needs_price: bool = False,
    measured_as: str | None = None,
    based_on: tuple[str, ...] = (),
) -> Callable[[Observe], Observe]:
    """Registers the decorated function as the definition of a metric; the arguments are the fields of `Metric`."""

    def register(observe: Observe) -> Observe:
        entry = Metric(
            tag=tag,
            title=title,
            unit=unit,
            formula=formula,
            equals=equals,
            higher_is_better=higher_is_better,
            observe=observe,
            is_rate=is_rate,
            needs_slos=needs_slos,
            needs_price=needs_price,
            measured_as=measured_as,
            based_on=based_on,
        )
        METRICS.register(tag, entry)
        return observe

    return register


def request_metric(
    tag: str, *, title: str, formula: str, equals: str, based_on: tuple[str, ...] = ()
) -> Callable[[OfRequests], OfRequests]:
    """Registers the decorated function, which gives a latency of each request in milliseconds, as a metric."""

    def register(of_requests: OfRequests) -> OfRequests:
        def observe(data: Round) -> Observations:
            return present(of_requests(data.streamed))

        entry = Metric(
            tag, title, "milliseconds", formula, equals, False, observe, based_on=based_on, of_requests=of_requests
        )
        METRICS.register(tag, entry)
        return of_requests

    return register


def present(values: pd.Series[float]) -> Observations:
    """Those that are not missing."""
    return np.asarray(values.dropna(), dtype=np.float64)


def slo_metrics() -> list[str]:
    """Metrics that can have an SLO: those of single requests."""
    return [each.tag for each in METRICS if each.of_requests is not None]


def round_values(run: RunData, tag: str) -> list[float]:
    """A metric's mean in each round, in order of rounds; a round without an observation is left out.

    Raises `ConfigError` on an unknown metric.
    """
    return _round_means([METRICS.get(tag).observe(data) for data in run.rounds.values()])


def summarise(run: RunData, definitions: Mapping[str, str] = MappingProxyType({})) -> list[dict[str, Any]]:
    """A row of `schemas.METRICS` for each metric, without study, run_id and workload.

    Spread and percentiles are over the observations of all rounds, the interval over the rounds' means. A metric
    without observation has n = 0 and nulls. `definitions` says of metrics how the client that made the records
    defines them otherwise (`Client.definitions`); `ConfigError` on an unknown metric in it.
    """
    for tag in definitions:
        METRICS.get(tag)
    return [
        _summary(metric, list(run.observations[metric.tag].values())) | {"definition": _definition(metric, definitions)}
        for metric in METRICS
    ]


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
    """The text of docs/metrics.md."""
    limited = ", ".join(f"`{tag}`" for tag in slo_metrics())
    parts = [_DOCS_HEAD.replace("SLO_METRICS", limited)]
    for entry in METRICS:
        better = {True: "higher is better", False: "lower is better", None: "neither direction is better"}
        parts.append(
            f"## `{entry.tag}`\n\n{entry.title}, in {entry.unit}; {better[entry.higher_is_better]}.\n\n"
            f"- Formula: {entry.formula}\n- Equals: {entry.equals}\n"
        )
    return "\n".join(parts)


_DOCS_HEAD = """\
# Metrics

Written by `scripts/generate_docs.py` from `scripts/servelab/metrics/`; edit there.

Every figure is computed from the records of a run, `results/runs/<run_id>/requests.parquet` (those of energy: from
its telemetry too). *Successful* requests are those without an error: status 200, a stream that ended as it should, and
the output length that was asked for. Input and output tokens are those the server counted. The *duration* of a round
runs from the first request sent until every request has ended, failed ones included. Requests of the settle phase load
the server and are in no figure; the duration then starts with the first request after them.

**Statistics.** A table's mean, standard deviation (population), minimum, maximum and percentiles (median, P90, P95,
P99; linear interpolation, as numpy's and vLLM's) are over all observations of all rounds: one a round for a rate, one a
request (or token, or gap) for a latency. `n` counts them. A metric without any observation has n = 0 and no values,
never a 0.

**Intervals.** The 95 % interval is Student's, over the means of the rounds: rounds are independent, requests of one
round are not. It needs two rounds; `±` in a report is half of its width. The interval of a change is Fieller's.

**Steady state.** While the load builds up and runs out the server is not as busy as it could be, and the shorter the
round, the more that weighs on its figures. The steady state is the time from the first to the last moment with at least
90 % of the peak concurrency in flight. Tokens count by the time their event came, requests by the time they ended. A
load without one, such as a single wave of requests, has no steady-state figures.

**SLOs.** `objective.slos` of a study sets limits on metrics of single requests, `slos: {ttft_ms: 500, tpot_ms: 50}`, in
the metric's unit. Goodput counts the requests that keep all of them. Metrics that can have a limit: SLO_METRICS.

**Other clients.** Records of another load client give the same figures by the same formulas. Where such a client takes
its times or counts otherwise, `metrics.parquet` says so in `definition`, and two runs whose definition of a metric
differs are not compared in it.

**Equals** names the tool whose figure is the same on the same requests, as read in its released source: vLLM 0.32.0
(`vllm bench serve`), guidellm 0.8.1, AIPerf 0.13.0, and the public source of SGLang's `bench_serving`.
"""


def _definition(metric: Metric, definitions: Mapping[str, str]) -> str | None:
    """How a client's definition differs, for the metric itself or for one that it is computed from."""
    return next((definitions[tag] for tag in (metric.tag, *metric.based_on) if tag in definitions), None)


def _round_means(rounds: list[Observations]) -> list[float]:
    return [float(values.mean()) for values in rounds if values.size]


def _summary(metric: Metric, rounds: list[Observations]) -> dict[str, Any]:
    values = np.concatenate(rounds) if rounds else np.empty(0)
    if not values.size:
        empty = ("mean", "std", "minimum", "median", "p90", "p95", "p99", "maximum", "ci95_low", "ci95_high")
        return {"metric": metric.tag, "n": 0, "rounds": 0} | dict.fromkeys(empty)
    means = _round_means(rounds)
    interval = mean_ci95(means)
    median, p90, p95, p99 = (float(value) for value in np.percentile(values, [50, 90, 95, 99]))
    return {
        "metric": metric.tag,
        "n": int(values.size),
        "mean": float(values.mean()),
        "std": float(values.std()),
        "minimum": float(values.min()),
        "median": median,
        "p90": p90,
        "p95": p95,
        "p99": p99,
        "maximum": float(values.max()),
        "rounds": len(means),
        "ci95_low": interval.low,
        "ci95_high": interval.high,
    }


METRICS.load(__name__)
