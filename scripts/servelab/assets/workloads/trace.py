"""A recorded trace: arrival times and lengths of real requests, with random tokens as prompts.

In Mooncake's format prompts begin alike as they did: a hash id names a block of 512 tokens and all before it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
from pydantic import Field

from servelab.assets.datasets import read_records
from servelab.assets.workloads import WARMUP_REQUESTS, WORKLOADS, Parameters, Workload, generator, open_dataset, table
from servelab.assets.workloads.random import ordinary_tokens, random_prompts
from servelab.core.errors import ServelabError

if TYPE_CHECKING:
    from tokenizers import Tokenizer


@dataclass(frozen=True)
class _Fields:
    arrival: str
    units_per_s: float | None
    """Of a number; None for a date and time."""
    input_tokens: str
    output_tokens: str
    blocks: str | None = None
    """Ids of the prompt's blocks of `BLOCK_TOKENS`; the same id is the same text, with the same text before it."""


BLOCK_TOKENS = 512

FORMATS = {
    # https://github.com/kvcache-ai/Mooncake, FAST25-release: JSON lines, times in ms
    "mooncake": _Fields("timestamp", 1000.0, "input_length", "output_length", "hash_ids"),
    # https://github.com/HPMLL/BurstGPT: CSV, times in s; a failed request has 0 response tokens
    "burstgpt": _Fields("Timestamp", 1.0, "Request tokens", "Response tokens"),
    # https://github.com/Azure/AzurePublicDataset, LLM inference traces of 2023 and 2024: CSV, dates with fractions of s
    "azure": _Fields("TIMESTAMP", None, "ContextTokens", "GeneratedTokens"),
}


class TraceParameters(Parameters):
    """Format and filters; lengths in the trace count as lengths in the model's own tokens."""

    endpoint: Literal["completions"] = "completions"
    format: Literal["mooncake", "burstgpt", "azure"] = Field(
        description="Format of the trace: its field names and units."
    )
    dataset_sha256: str = Field(description="sha256 of the trace; the configuration names it as `dataset` instead.")
    max_input_tokens: int | None = Field(None, ge=1, description="Requests with longer prompts are skipped.")
    max_output_tokens: int | None = Field(None, ge=1, description="Requests with longer answers are skipped.")
    speed: float = Field(1.0, gt=0, description="Speed of the replay; 2 is twice as fast as recorded.")


class Trace(Workload):
    """The first requests of a trace that pass the length filters, in order of arrival."""

    kind = "trace"
    version = "2"
    Parameters = TraceParameters
    sends_token_ids = True
    has_arrival_times = True
    needs_dataset = True

    def longest_tokens(self, parameters: TraceParameters) -> int | None:
        if parameters.max_input_tokens is None or parameters.max_output_tokens is None:
            return None
        return parameters.max_input_tokens + parameters.max_output_tokens

    def make(self, parameters: TraceParameters, tokenizer: Tokenizer, dataset: Path | None) -> pa.Table:
        """See `Workload.make`; the warm-up rows repeat the lengths of the first requests with other tokens."""
        stored, file = open_dataset(dataset, parameters.dataset_sha256)
        found = read_records(file, partial(_request, parameters=parameters), cut=stored.part_of is not None)
        rows = sorted((row for row in found if row is not None), key=lambda row: row["arrival_s"])
        if len(rows) < parameters.num_requests:
            raise ServelabError(
                f"{stored.name}: {len(rows):,} of {len(found):,} requests pass the length filters, "
                f"{parameters.num_requests:,} are needed: ask for fewer or widen them"
            )
        rows = rows[: parameters.num_requests]
        first_s = rows[0]["arrival_s"]
        warmup = [{**rows[index % len(rows)], "arrival_s": None} for index in range(WARMUP_REQUESTS)]
        prompts = random_prompts(tokenizer, generator(parameters.seed), [row["input_tokens"] for row in rows + warmup])
        for row, prompt in zip(rows + warmup, prompts, strict=True):
            row["prompt_token_ids"] = prompt
        ids = ordinary_tokens(tokenizer)
        for row in rows:
            row["arrival_s"] = (row["arrival_s"] - first_s) / parameters.speed
            if row["blocks"]:
                drawn = [Random(f"{parameters.seed}-{block}").choices(ids, k=BLOCK_TOKENS) for block in row["blocks"]]  # noqa: S311
                row["prompt_token_ids"] = [token for block in drawn for token in block][: row["input_tokens"]]
        return table(*([{key: row[key] for key in row.keys() - {"blocks"}} for row in part] for part in (rows, warmup)))


def _request(record: Mapping[str, Any], parameters: TraceParameters) -> dict[str, Any] | None:
    """A request; None if the filters leave it out, `ValueError` if the record is not of the format."""
    fields = FORMATS[parameters.format]
    try:
        arrival_s = _seconds(record[fields.arrival], fields.units_per_s)
        tokens, output = _whole(record[fields.input_tokens]), _whole(record[fields.output_tokens])
        blocks = [int(block) for block in record.get(fields.blocks) or []] if fields.blocks else []
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"has not the {parameters.format} format: {error!r}") from None
    if not math.isfinite(arrival_s):
        raise ValueError(f"{fields.arrival} is {arrival_s}, which is no time")
    if blocks and not 0 <= len(blocks) * BLOCK_TOKENS - tokens < BLOCK_TOKENS:
        raise ValueError(f"{fields.blocks} has {len(blocks):,} blocks of {BLOCK_TOKENS} for {tokens:,} tokens")
    fits = tokens <= (parameters.max_input_tokens or tokens) and output <= (parameters.max_output_tokens or output)
    if min(tokens, output) < 1 or not fits:
        return None
    return {"arrival_s": arrival_s, "input_tokens": tokens, "output_tokens": output, "blocks": blocks}


def _whole(value: Any) -> int:
    """A whole number, also one that is written as `18.0`."""
    number = float(value)
    if not number.is_integer():
        raise ValueError(f"{value} is no whole number")
    return int(number)


def _seconds(time: Any, units_per_s: float | None) -> float:
    if units_per_s is not None:
        return float(time) / units_per_s
    moment = datetime.fromisoformat(time)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


WORKLOADS.register(Trace.kind, Trace())
