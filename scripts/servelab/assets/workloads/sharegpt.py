"""ShareGPT: real first questions, each with the length of its real answer.

Filters and defaults are those of `vllm bench serve --dataset-name sharegpt`. Two differences avoid figures that are too
good: an answer at the start of a conversation is not used as a question, and a prompt is used once (a repeated prompt
would come from the prefix cache).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pydantic import Field

from servelab.assets.datasets import iter_records
from servelab.assets.workloads import WARMUP_REQUESTS, WORKLOADS, Parameters, Workload, generator, open_dataset, table
from servelab.core.errors import ServelabError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

ASKS = frozenset({"human", "user"})
ANSWERS = frozenset({"gpt", "assistant", "chatgpt", "bing", "bard"})
BATCH = 256


class ShareGptParameters(Parameters):
    """Length filters, in the model's own tokens and without chat template."""

    dataset_sha256: str = Field(description="sha256 of the dataset; the configuration names it as `dataset` instead.")
    min_input_tokens: int = Field(4, ge=1, description="Shorter prompts are skipped.")
    min_output_tokens: int = Field(4, ge=1, description="Shorter answers are skipped.")
    max_input_tokens: int = Field(1024, ge=1, description="Longer prompts are skipped.")
    max_output_tokens: int | None = Field(None, ge=1, description="Longer answers are skipped; null is no limit.")
    max_total_tokens: int = Field(2048, ge=2, description="Longer sums of prompt and answer are skipped.")


class ShareGpt(Workload):
    """First human turn and the answer that follows it."""

    kind = "sharegpt"
    version = "2"
    Parameters = ShareGptParameters
    needs_dataset = True

    def longest_tokens(self, parameters: ShareGptParameters) -> int:
        """See `Workload.longest_tokens`."""
        longest_output = parameters.max_output_tokens or parameters.max_total_tokens
        return min(parameters.max_input_tokens + longest_output, parameters.max_total_tokens)

    def shared_input(self, parameters: Mapping[str, Any]) -> float:
        """See `Workload.shared_input`: different questions hardly begin alike."""
        return 0.0

    def make(self, parameters: ShareGptParameters, tokenizer: Tokenizer, dataset: Path | None) -> pa.Table:
        """See `Workload.make`; the questions that pass the filters, in seeded order."""
        stored, file = open_dataset(dataset, parameters.dataset_sha256)
        pairs = list(_first_exchanges(file, cut=stored.part_of is not None))
        generator(parameters.seed).shuffle(pairs)
        wanted = parameters.num_requests + WARMUP_REQUESTS
        rows: list[dict[str, Any]] = []
        for start in range(0, len(pairs), BATCH):
            rows += _fitting(pairs[start : start + BATCH], parameters, tokenizer)
            if len(rows) >= wanted:
                return table(rows[: parameters.num_requests], rows[parameters.num_requests : wanted])
        raise ServelabError(
            f"{stored.name}: {len(rows):,} requests pass the length filters, {wanted:,} are needed "
            f"({parameters.num_requests:,} measured and {WARMUP_REQUESTS} for warm-up): ask for fewer or widen them"
        )


def _first_exchanges(file: Path, *, cut: bool) -> Iterator[tuple[str, str]]:
    """(question, answer) of each conversation that has both; repeated questions are skipped."""
    seen: set[str] = set()
    for record in iter_records(file, cut=cut):
        turns = record.get("conversations", [])
        for turn, next_turn in pairwise(turns):
            if turn["from"] not in ASKS:
                continue
            question, answer = turn["value"], next_turn["value"]
            if next_turn["from"] in ANSWERS and question not in seen:
                seen.add(question)
                yield question, answer
            break


def _fitting(
    pairs: list[tuple[str, str]], parameters: ShareGptParameters, tokenizer: Tokenizer
) -> Iterator[dict[str, Any]]:
    """Rows for the pairs that pass the length filters."""
    questions = tokenizer.encode_batch([question for question, _ in pairs], add_special_tokens=False)
    answers = tokenizer.encode_batch([answer for _, answer in pairs], add_special_tokens=False)
    longest_output = parameters.max_output_tokens or parameters.max_total_tokens
    for (question, _), question_tokens, answer_tokens in zip(pairs, questions, answers, strict=True):
        input_tokens, output_tokens = len(question_tokens.ids), len(answer_tokens.ids)
        if (
            parameters.min_input_tokens <= input_tokens <= parameters.max_input_tokens
            and parameters.min_output_tokens <= output_tokens <= longest_output
            and input_tokens + output_tokens <= parameters.max_total_tokens
        ):
            yield {"prompt": question, "input_tokens": input_tokens, "output_tokens": output_tokens}


WORKLOADS.register(ShareGpt.kind, ShareGpt())
