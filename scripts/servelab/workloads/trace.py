"""A recorded trace: when real requests came and how long they were, with random tokens for what they said.

The recorded prompts are not published, so the prompts have only the lengths in common with them; that requests shared
prefixes (Mooncake's `hash_ids`) is left out, and no prefix cache helps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
from pydantic import Field
from tokenizers import Tokenizer

from servelab.datasets import iter_records, load_stored_dataset
from servelab.errors import ServelabError
from servelab.workloads import WARMUP_REQUESTS, WORKLOADS, Parameters, generator, table
from servelab.workloads.random import random_prompts


@dataclass(frozen=True)
class _Fields:
    arrival: str
    units_per_s: float
    input_tokens: str
    output_tokens: str


FORMATS = {
    # https://github.com/kvcache-ai/Mooncake, FAST25-release: JSON lines, times in ms
    "mooncake": _Fields("timestamp", 1000.0, "input_length", "output_length"),
    # https://github.com/HPMLL/BurstGPT: CSV, times in s; a failed request has 0 response tokens
    "burstgpt": _Fields("Timestamp", 1.0, "Request tokens", "Response tokens"),
}


class TraceParameters(Parameters):
    """Which of the trace's requests; lengths are taken as lengths in the model's own tokens."""

    endpoint: Literal["completions"] = "completions"
    format: Literal["mooncake", "burstgpt"] = Field(description="Whose field names the trace has.")
    dataset_sha256: str = Field(description="The trace's content; the configuration gives `dataset`, its name.")
    max_input_tokens: int | None = Field(None, ge=1, description="Requests with longer prompts are left out.")
    max_output_tokens: int | None = Field(None, ge=1, description="Requests with longer answers are left out.")
    speed: float = Field(1.0, gt=0, description="The trace is replayed so many times as fast as it was recorded.")


class Trace:
    """The first requests of a trace that pass the length filters, in order of arrival."""

    kind = "trace"
    version = "1"
    Parameters = TraceParameters
    sends_token_ids = True
    has_arrival_times = True
    needs_dataset = True

    def longest_tokens(self, parameters: TraceParameters) -> int | None:
        """See `Workload.longest_tokens`."""
        if parameters.max_input_tokens is None or parameters.max_output_tokens is None:
            return None
        return parameters.max_input_tokens + parameters.max_output_tokens

    def make(self, parameters: TraceParameters, tokenizer: Tokenizer, dataset: Path | None) -> pa.Table:
        """The rows; the warm-up ones have the lengths of the first requests again, and other tokens."""
        if dataset is None:
            raise ServelabError("a trace workload needs a dataset")
        stored, file = load_stored_dataset(dataset)
        if stored.sha256 != parameters.dataset_sha256:
            raise ServelabError(
                f"{dataset}: holds {stored.name} (sha256 {stored.sha256[:12]}…), "
                f"the workload is made from {parameters.dataset_sha256[:12]}…"
            )
        rows = sorted(_requests(file, parameters, cut=stored.part_of is not None), key=lambda row: row["arrival_s"])
        if len(rows) < parameters.num_requests:
            raise ServelabError(
                f"{stored.name}: {len(rows):,} requests pass the length filters, {parameters.num_requests:,} are "
                "needed: ask for fewer or widen them"
            )
        rows = rows[: parameters.num_requests]
        first_s = rows[0]["arrival_s"]
        warmup = [{**rows[index % len(rows)], "arrival_s": None} for index in range(WARMUP_REQUESTS)]
        prompts = random_prompts(tokenizer, generator(parameters.seed), [row["input_tokens"] for row in rows + warmup])
        for row, prompt in zip(rows + warmup, prompts, strict=True):
            row["prompt_token_ids"] = prompt
        for row in rows:
            row["arrival_s"] = (row["arrival_s"] - first_s) / parameters.speed
        return table(rows, warmup)


def _requests(file: Path, parameters: TraceParameters, *, cut: bool) -> Iterator[dict[str, Any]]:
    fields = FORMATS[parameters.format]
    for number, record in enumerate(iter_records(file, cut=cut)):
        try:
            row = {
                "arrival_s": float(record[fields.arrival]) / fields.units_per_s,
                "input_tokens": int(record[fields.input_tokens]),
                "output_tokens": int(record[fields.output_tokens]),
            }
        except (KeyError, TypeError, ValueError) as error:
            raise ServelabError(f"{file}: record {number:,} is not of a {parameters.format} trace: {error!r}") from None
        if 1 <= row["input_tokens"] <= (parameters.max_input_tokens or row["input_tokens"]) and 1 <= row[
            "output_tokens"
        ] <= (parameters.max_output_tokens or row["output_tokens"]):
            yield row


WORKLOADS.register(Trace.kind, Trace())
