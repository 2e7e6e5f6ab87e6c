"""Prompts in groups: those of a group begin alike, as with a system prompt, and end each in its own tokens."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
from pydantic import Field

from servelab.assets.workloads import WARMUP_REQUESTS, WORKLOADS, Parameters, Workload, generator, table
from servelab.assets.workloads.random import random_prompts

if TYPE_CHECKING:
    from tokenizers import Tokenizer


class SharedPrefixParameters(Parameters):
    """Exact lengths in the model's own tokens. Prompts are sent as token ids, as those of `random`."""

    endpoint: Literal["completions"] = "completions"
    groups: int = Field(gt=0, description="Number of different prefixes; requests go round the groups.")
    prefix_tokens: int = Field(gt=0, description="Length of each group's common beginning, in tokens.")
    suffix_tokens: int = Field(gt=0, description="Length of what follows it, different in each request, in tokens.")
    output_tokens: int = Field(gt=0, description="Output length to force, in tokens.")


class SharedPrefix(Workload):
    """Random tokens. A prefix's first request finds it in no cache; each later one may."""

    kind = "shared_prefix"
    version = "1"
    Parameters = SharedPrefixParameters
    sends_token_ids = True

    def longest_tokens(self, parameters: SharedPrefixParameters) -> int:
        """See `Workload.longest_tokens`."""
        return parameters.prefix_tokens + parameters.suffix_tokens + parameters.output_tokens

    def shared_input(self, parameters: Mapping[str, Any]) -> float:
        """See `Workload.shared_input`: (requests - groups) x prefix / (requests x (prefix + suffix))."""
        given = SharedPrefixParameters.model_validate(parameters)
        later, tokens = max(0, given.num_requests - given.groups), given.prefix_tokens + given.suffix_tokens
        return later * given.prefix_tokens / (given.num_requests * tokens)

    def make(self, parameters: SharedPrefixParameters, tokenizer: Tokenizer, dataset: Path | None) -> pa.Table:
        """See `Workload.make`; the warm-up has prefixes of its own."""
        draw, count = generator(parameters.seed), parameters.num_requests
        prefixes = list(random_prompts(tokenizer, draw, [parameters.prefix_tokens] * 2 * parameters.groups))
        suffixes = list(random_prompts(tokenizer, draw, [parameters.suffix_tokens] * (count + WARMUP_REQUESTS)))
        measured, warmup = prefixes[: parameters.groups], prefixes[parameters.groups :]
        return table(
            _rows(measured, suffixes[:count], parameters.output_tokens),
            _rows(warmup, suffixes[count:], parameters.output_tokens),
        )


def _rows(prefixes: list[list[int]], suffixes: Iterable[list[int]], output_tokens: int) -> list[dict[str, Any]]:
    prompts = [[*prefixes[index % len(prefixes)], *suffix] for index, suffix in enumerate(suffixes)]
    return [
        {"prompt_token_ids": prompt, "input_tokens": len(prompt), "output_tokens": output_tokens} for prompt in prompts
    ]


WORKLOADS.register(SharedPrefix.kind, SharedPrefix())
