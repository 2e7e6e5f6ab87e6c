"""ShareGPT: real first questions, each with the length of its real answer.

Filters and defaults are those of `vllm bench serve --dataset-name sharegpt`. Two differences, both against
flattering figures: a conversation that opens with an answer is not taken for a question, and a prompt is used once
(a repeated one would be served from the prefix cache).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
from pydantic import Field
from tokenizers import Tokenizer

from servelab.datasets import iter_records, load_stored_dataset
from servelab.errors import ServelabError
from servelab.workloads import WARMUP_REQUESTS, WORKLOADS, Parameters, generator, table

ASKS = frozenset({"human", "user"})
ANSWERS = frozenset({"gpt", "assistant", "chatgpt", "bing", "bard"})
BATCH = 256


class ShareGptParameters(Parameters):
    """Draw and length filters, in the model's own tokens and without chat template."""

    dataset_sha256: str = Field(description="The dataset's content; the configuration gives `dataset`, its name.")
    min_input_tokens: int = Field(4, ge=1, description="Shorter prompts are left out.")
    min_output_tokens: int = Field(4, ge=1, description="Shorter answers are left out.")
    max_input_tokens: int = Field(1024, ge=1, description="Longer prompts are left out.")
    max_output_tokens: int | None = Field(None, ge=1, description="Longer answers are left out; null is no limit.")
    max_total_tokens: int = Field(2048, ge=2, description="Longer sums of prompt and answer are left out.")


class ShareGpt:
    """First human turn and the answer that follows it."""

    kind = "sharegpt"
    version = "2"
    Parameters = ShareGptParameters
    sends_token_ids = False
    has_arrival_times = False
    needs_dataset = True

    def longest_tokens(self, parameters: ShareGptParameters) -> int:
        """See `Workload.longest_tokens`."""
        longest_output = parameters.max_output_tokens or parameters.max_total_tokens
        return min(parameters.max_input_tokens + longest_output, parameters.max_total_tokens)

    def make(self, parameters: ShareGptParameters, tokenizer: Tokenizer, dataset: Path | None) -> pa.Table:
        """The rows: questions in seeded order, as far as they pass the filters; the warm-up ones come after."""
        if dataset is None:
            raise ServelabError("a sharegpt workload needs a dataset")
        stored, file = load_stored_dataset(dataset)
        if stored.sha256 != parameters.dataset_sha256:
            raise ServelabError(
                f"{dataset}: holds {stored.name} (sha256 {stored.sha256[:12]}…), "
                f"the workload is made from {parameters.dataset_sha256[:12]}…"
            )
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
            f"({parameters.num_requests:,} measured and {WARMUP_REQUESTS} to warm up): ask for fewer or widen them"
        )


def _first_exchanges(file: Path, *, cut: bool) -> Iterator[tuple[str, str]]:
    """(question, answer) of each conversation that has one, no question twice."""
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
    """Rows of the pairs whose lengths pass."""
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
