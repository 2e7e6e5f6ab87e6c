"""Results of a bench, kept in `bench.json`: figures of each load over its visits, with the checks of a study's runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa
from pydantic import Field, ValidationError

from servelab.bench.load import CLIENT, Accepted, Point, Target, send_point
from servelab.core.errors import ConfigError
from servelab.core.files import JsonFile, JsonPart
from servelab.core.registry import nearest
from servelab.core.run_spec import (
    CapacitySpec,
    EngineSpec,
    HardwareSpec,
    LoadOf,
    ModelSpec,
    PathSource,
    ProtocolSpec,
    RunSpec,
    WorkloadSpec,
)
from servelab.engines.endpoint import Asked
from servelab.measure.clients import CLIENTS, client_of
from servelab.measure.load import LoadStats
from servelab.metrics.capacity import UNITS, CapacityStep, find_capacity, judge, next_load
from servelab.metrics.definitions import METRICS, RunData, slo_metrics, summarise, summarise_rounds
from servelab.metrics.statistics import Interval, mean_ci95
from servelab.metrics.tables.io import known, record_array, succeeded
from servelab.results.checks import Evidence, check_run, verdict

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


_UNKNOWN = "not known"


class BenchFinding(JsonPart):
    """Result of a check (docs/reference/checks.md)."""

    check: str
    level: str
    saw: str
    action: str | None = None


class PointResult(JsonPart):
    """One load."""

    name: str = Field(description="`16 at once` or `2.5 per second`.")
    max_concurrency: int | None
    request_rate: float | None
    requests: int = Field(description="Requests of all visits.")
    failed: int
    cached_percent: float | None = Field(
        description="Share of the prompts' tokens that came from a cache, as the server reports; null if it does not."
    )
    validity: str = Field(description="`ok`, `suspect` or `invalid`: that of the worst check.")
    findings: list[BenchFinding] = Field(description="Every check.")
    visits: dict[str, list[float]] = Field(description="Metric → its value in each visit.")
    p99: dict[str, float] = Field(description="Metric → 99th percentile over the observations of all visits.")

    def interval(self, metric: str) -> Interval | None:
        """Mean and 95 % interval over visits; None without a value."""
        values = self.visits.get(metric)
        return mean_ci95(values) if values else None

    @property
    def failures(self) -> list[BenchFinding]:
        """Findings of the checks that failed."""
        return [each for each in self.findings if each.level in ("suspect", "invalid")]


class BenchLoad(JsonPart):
    """The requests that were sent."""

    endpoint: str
    input_tokens: int = Field(description="Length that the prompts were made for; `mean_input_tokens` is what came.")
    output_tokens: int = Field(description="Longest answer.")
    is_length_forced: bool = Field(description="Whether every answer has that length.")
    keep_alive: bool = Field(False, description="Whether connections were used again.")
    mean_input_tokens: float = Field(description="Mean of the server's counts.")
    mean_output_tokens: float = Field(description="Mean of the server's counts.")
    visits: int
    seed: int = Field(description="Of the prompts: another one in each bench, so that no cache knows them.")


class Bench(JsonFile):
    """`bench.json`."""

    asked: Asked = Field(description="What the server says about itself.")
    load: BenchLoad
    points: list[PointResult]
    capacity: SearchedCapacity | None = Field(
        None, description="The highest load that it sustains, if it was searched."
    )
    client: str = Field(description="Load client and its version.")
    servelab: str = Field(description="Release of Servelab.")
    host: str = Field(description="Name of the machine that sent the load.")
    started_at: str
    finished_at: str


def point_result(point: Point, endpoint: str, records: pa.Table, stats: Sequence[LoadStats]) -> PointResult:
    """Figures and checks of a load, from the records of all visits, each a round, and what each cost the client."""
    data = RunData(records)
    summary = {row["metric"]: row for row in summarise(data, CLIENTS.get(CLIENT).definitions)}
    rounds: dict[str, dict[int, float]] = {}
    for row in summarise_rounds(data):
        rounds.setdefault(row["metric"], {})[row["round"]] = row["value"]
    evidence = Evidence(
        records=data.requests,
        spec=_spec(point, endpoint, len(stats)),
        server_starts=None,
        summary=summary,
        rounds=rounds,
        client=stats,
        telemetry=data.samples,
    )
    findings = check_run(evidence)
    return PointResult(
        name=point.name,
        max_concurrency=point.max_concurrency,
        request_rate=point.request_rate,
        requests=records.num_rows,
        failed=records.num_rows - records["error"].null_count,
        cached_percent=_cached_percent(records),
        validity=verdict(findings)[0],
        findings=[BenchFinding(**finding) for finding in findings],
        visits={metric: list(values.values()) for metric, values in rounds.items()},
        p99={name: float(row["p99"]) for name, row in summary.items() if METRICS.get(name).is_latency and row["n"]},
    )


def means(tables: Sequence[pa.Table]) -> Mapping[str, float]:
    """Mean input and output tokens of the successful requests, by the server's counts."""
    done = succeeded(record_array(pa.concat_tables(tables)))
    return {name: float(done[name].mean()) for name in ("input_tokens", "output_tokens")}


def _cached_percent(records: pa.Table) -> float | None:
    rows = known(record_array(records), "cached_tokens", "input_tokens")
    tokens = float(rows["input_tokens"].sum())
    return 100 * float(rows["cached_tokens"].sum()) / tokens if tokens else None


def _spec(point: Point, endpoint: str, visits: int) -> RunSpec:
    """A run's input to the checks; the server is unknown."""
    source = PathSource(path=f"/{_UNKNOWN}", revision=_UNKNOWN)
    return RunSpec(
        engine=EngineSpec(name="endpoint", version=_UNKNOWN, environment_sha256=_UNKNOWN),
        model=ModelSpec(id=_UNKNOWN, variant="base", source=source, format="safetensors"),
        hardware=HardwareSpec(accelerator=_UNKNOWN, device=_UNKNOWN, count=1),
        workload=WorkloadSpec(
            kind="random_text", parameters={"endpoint": endpoint}, tokenizer=source, generator_version=_UNKNOWN
        ),
        # of a load at a rate the server's speed is its latency: its throughput is what was sent
        objective="total_tokens_per_s" if point.max_concurrency else "e2el_ms",
        client=client_of(CLIENTS.get(CLIENT)),
        protocol=ProtocolSpec(
            rounds=visits, max_concurrency=point.max_concurrency, request_rate=point.request_rate or "inf"
        ),
    )
