"""Results of a bench, kept in `bench.json`: figures of each load over its visits, with the checks of a study's runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
from pydantic import Field

from servelab.bench.load import CLIENT, Point
from servelab.core.files import JsonFile, JsonPart
from servelab.core.run_spec import (
    EngineSpec,
    HardwareSpec,
    ModelSpec,
    PathSource,
    ProtocolSpec,
    RunSpec,
    WorkloadSpec,
)
from servelab.engines.endpoint import Asked
from servelab.measure.clients import CLIENTS, client_of
from servelab.measure.load import LoadStats
from servelab.metrics.definitions import METRICS, RunData, summarise, summarise_rounds
from servelab.metrics.statistics import Interval, mean_ci95
from servelab.metrics.tables.io import known, record_array, succeeded
from servelab.results.checks import Evidence, check_run, verdict

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
    mean_input_tokens: float = Field(description="Mean of the server's counts.")
    mean_output_tokens: float = Field(description="Mean of the server's counts.")
    visits: int
    seed: int = Field(description="Of the prompts: another one in each bench, so that no cache knows them.")


class Bench(JsonFile):
    """`bench.json`."""

    asked: Asked = Field(description="What the server says about itself.")
    load: BenchLoad
    points: list[PointResult]
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
    rows = known(record_array(records), "cached_tokens", "input_tokens")
    tokens = float(rows["input_tokens"].sum())
    return PointResult(
        name=point.name,
        requests=records.num_rows,
        failed=records.num_rows - records["error"].null_count,
        cached_percent=100 * float(rows["cached_tokens"].sum()) / tokens if tokens else None,
        validity=verdict(findings)[0],
        findings=[BenchFinding(**finding) for finding in findings],
        visits={metric: list(values.values()) for metric, values in rounds.items()},
        p99={name: float(row["p99"]) for name, row in summary.items() if METRICS.get(name).is_latency and row["n"]},
    )


def means(tables: Sequence[pa.Table]) -> Mapping[str, float]:
    """Mean input and output tokens of the successful requests, by the server's counts."""
    done = succeeded(record_array(pa.concat_tables(tables)))
    return {name: float(done[name].mean()) for name in ("input_tokens", "output_tokens")}


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
