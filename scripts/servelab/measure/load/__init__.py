"""The load to send to a server and its times (`LoadPlan`), and Servelab's own client that sends it.

`requests` (bodies, arrival times) → `sender` (one or more processes, each an event `loop` with `connections`) →
`records` (what the answers hold). See docs/load.md.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit

import pyarrow as pa
from pydantic import Field, field_validator

from servelab.core.files import JsonPart
from servelab.core.run_spec import Arrivals, Strict

RESERVED = ("model", "messages", "prompt", "stream", "stream_options", "max_tokens", "temperature")
"""Fields of a request that the client sets."""


class LoadPlan(Strict):
    """One round of load on one server."""

    base_url: str = Field(
        description="`http://host:port` or `https://host:port` with its API at `/v1`, or followed by the API's path."
    )
    more_urls: tuple[str, ...] = Field((), description="Further servers that requests are spread over.")
    balancer: str = Field("round_robin", description="How: `round_robin` or `least_in_flight`.")
    api_key_env: str | None = Field(
        None, description="Name of the environment variable with the key that is sent as `Authorization: Bearer …`."
    )
    header_env: dict[str, str] = Field({}, description="Further headers → environment variable with the value.")
    insecure: bool = Field(False, description="Do not check the server's certificate.")
    endpoint: Literal["chat", "completions"] = Field(description="`chat` sends text to `/v1/chat/completions`.")
    model: str = Field(description="Model name to send.")
    requests: Path = Field(description="The workload's `requests.parquet`.")
    tokenizer: Path | None = Field(None, description="The model's tokenizer.json, for clients that tokenize.")
    phase: Literal["warmup", "measured"] = "measured"
    limit: int | None = Field(None, ge=0, description="Send only the phase's first requests; null sends all.")
    round: int = Field(0, ge=0, description="Number of the round, written into its records.")
    settle_requests: int = Field(0, ge=0, description="The first requests, sent but marked as not counted.")
    request_rate: float | Literal["inf"] = Field(
        "inf", description="Mean requests per second; `inf` schedules all at once."
    )
    arrivals: Arrivals = Field("poisson", description="Gaps between requests; see `run_spec.ProtocolSpec`.")
    burstiness: float = Field(1.0, gt=0, description="Shape of `gamma` arrivals.")
    ramp_up_s: float = Field(0.0, ge=0, description="Seconds over which the rate grows from 0.")
    max_concurrency: int | None = Field(None, ge=1, description="Most requests in flight; null is no limit.")
    duration_s: float | None = Field(None, gt=0, description="Seconds to send for; null sends all requests.")
    saturation_in_flight: int | None = Field(None, ge=1, description="End the round at this many in flight.")
    processes: int = Field(1, ge=1, description="Processes that send.")
    seed: int = Field(0, description="Seed of the arrival times.")
    keep_answers: bool = Field(
        False, description="Keep the texts of the answers, which may be shorter than the longest length asked for."
    )
    natural_stops: bool = Field(False, description="Answers may be shorter than asked for: they end by themselves.")
    timeout_s: float = Field(900.0, gt=0, description="Requests that are unfinished by then fail.")
    request_timeout_s: float = Field(900.0, gt=0, description="The same for one request, from its start.")
    body: dict[str, Any] = Field(
        default={},
        description="Further fields of each request, set by the engine. With `max_completion_tokens` of any value the "
        "length is sent under that name.",
    )

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Host and port of each server."""
        return [_address(url) for url in (self.base_url, *self.more_urls)]

    @field_validator("base_url")
    @classmethod
    def _has_an_address(cls, base_url: str) -> str:
        _address(base_url)
        return base_url

    @field_validator("body")
    @classmethod
    def _sets_nothing_reserved(cls, body: dict[str, Any]) -> dict[str, Any]:
        if taken := sorted(set(body) & set(RESERVED)):
            raise ValueError(f"the client sets {', '.join(taken)} itself")
        return body


def _address(base_url: str) -> tuple[str, int]:
    """Host and port; `ValueError` unless it is `http://host:port` or the same with `https`."""
    url = urlsplit(base_url)
    if url.scheme not in ("http", "https") or not url.hostname or url.port is None:
        raise ValueError(f"must be http://host:port or https://host:port, not {base_url}")
    return url.hostname, url.port


class LoadStats(JsonPart):
    """The load client's own cost in one round, and how the round ended; null for what the client does not report."""

    processes: int = Field(1, description="Processes of the client.")
    origin_monotonic_s: float | None = Field(None, description="Time 0 of the records on the monotonic clock.")
    wall_s: float | None = Field(None, description="From the start of the round until the last request ended.")
    cpu_s: float | None = Field(None, description="CPU time of all its processes over `wall_s`.")
    unread_p99_ms: float | None = Field(
        None, description="99th percentile of the time that pieces waited in the kernel until the client read them."
    )
    tokens_counted: int = Field(
        0, description="Requests whose tokens were counted with the tokenizer, as the server sent no usage."
    )
    without_done: int = Field(0, description="Successes that ended without `[DONE]`.")
    requests_not_sent: int = Field(0, description="Requests not sent because `duration_s` was over.")
    saturated: bool = Field(False, description="Whether the round ended because too many requests were in flight.")


class LoadResult(NamedTuple):
    """Result of a round of load."""

    records: pa.Table
    """`schemas.RUN_REQUESTS`, one row per request that was due, in order of arrival."""
    stats: LoadStats
    answers: pa.Table | None = None
    """`schemas.RUN_ANSWERS`, of a plan that keeps them."""
