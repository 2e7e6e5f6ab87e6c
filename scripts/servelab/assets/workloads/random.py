"""Random tokens: every prompt has exactly the requested length, and no two prompts share a prefix."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pydantic import Field

from servelab.assets.workloads import WARMUP_REQUESTS, WORKLOADS, Parameters, Workload, generator, table
from servelab.core.errors import ServelabError

if TYPE_CHECKING:
    from tokenizers import Tokenizer
from typing import TYPE_CHECKING, Literal


class RandomParameters(Parameters):
    """Exact lengths. Prompts are sent as token ids: text of random tokens would be tokenized to another length."""

    endpoint: Literal["completions"] = "completions"
    input_tokens: int = Field(gt=0, description="Prompt length in the model's own tokens.")
    output_tokens: int = Field(gt=0, description="Output length to force, in tokens.")


class RandomTokens(Workload):
    """Uniform draws from the model's ordinary tokens."""

    kind = "random"
    version = "2"
    Parameters = RandomParameters
    sends_token_ids = True

    def longest_tokens(self, parameters: RandomParameters) -> int:
        """See `Workload.longest_tokens`."""
        return parameters.input_tokens + parameters.output_tokens

    def shared_input(self, parameters: Mapping[str, Any]) -> float:
        """See `Workload.shared_input`."""
        return 0.0

    def make(self, parameters: RandomParameters, tokenizer: Tokenizer, dataset: Path | None) -> pa.Table:
        """See `Workload.make`."""
        lengths = [parameters.input_tokens] * (parameters.num_requests + WARMUP_REQUESTS)
        rows: list[dict[str, Any]] = [
            {"prompt_token_ids": prompt, "input_tokens": len(prompt), "output_tokens": parameters.output_tokens}
            for prompt in random_prompts(tokenizer, generator(parameters.seed), lengths)
        ]
        return table(rows[: parameters.num_requests], rows[parameters.num_requests :])


def random_prompts(tokenizer: Tokenizer, draw: Random, lengths: Sequence[int]) -> Iterator[list[int]]:
    """Prompts of these lengths in tokens; their first tokens all differ as long as the vocabulary is large enough."""
    ids = ordinary_tokens(tokenizer)
    first = draw.sample(ids, len(ids))
    for index, length in enumerate(lengths):
        yield [first[index % len(first)], *draw.choices(ids, k=length - 1)]


def warmup_like(rows: Sequence[dict[str, Any]], tokenizer: Tokenizer, seed: int) -> list[dict[str, Any]]:
    """Warm-up rows for text of one's own: random tokens as text, about half as long as the prompts of `rows`."""
    like = [rows[index % len(rows)] for index in range(WARMUP_REQUESTS)]
    drawn = random_prompts(tokenizer, generator(seed), [(row["input_tokens"] + 1) // 2 for row in like])
    texts = [tokenizer.decode(ids) for ids in drawn]
    counts = [len(each.ids) for each in tokenizer.encode_batch(texts, add_special_tokens=False)]
    return [
        {"prompt": text, "input_tokens": count, "output_tokens": row["output_tokens"]}
        for text, count, row in zip(texts, counts, like, strict=True)
    ]


def ordinary_tokens(tokenizer: Tokenizer) -> list[int]:
    """Ids of all tokens that are not special; `ServelabError` if there are none."""
    special = tokenizer.get_added_tokens_decoder()
    ids = sorted(set(tokenizer.get_vocab(with_added_tokens=True).values()) - special.keys())
    if not ids:
        raise ServelabError("the model's tokenizer has no ordinary tokens for random prompts")
    return ids


WORKLOADS.register(RandomTokens.kind, RandomTokens())


_WORD = re.compile(r"[Ġ▁ ][A-Za-z]+")
"""Tokens of one word with the space before it, as vocabularies write them: side by side they stay what they are."""
_FEWEST_WORDS = 100
_TRIES = 10


class RandomTextParameters(Parameters):
    """Lengths in the model's own tokens, without chat template."""

    input_tokens: int = Field(gt=0, description="Prompt length, counted in the text that is sent.")
    output_tokens: int = Field(gt=0, description="Output length to force, in tokens.")


class RandomText(Workload):
    """Random tokens that are words where the vocabulary has such, put together as text."""

    kind = "random_text"
    version = "1"
    Parameters = RandomTextParameters

    def longest_tokens(self, parameters: RandomTextParameters) -> int:
        """See `Workload.longest_tokens`."""
        return parameters.input_tokens + parameters.output_tokens

    def shared_input(self, parameters: Mapping[str, Any]) -> float:
        """See `Workload.shared_input`."""
        return 0.0

    def make(self, parameters: RandomTextParameters, tokenizer: Tokenizer, dataset: Path | None) -> pa.Table:
        """See `Workload.make`."""
        count, length = parameters.num_requests, parameters.input_tokens
        texts = random_texts(tokenizer, generator(parameters.seed), count + WARMUP_REQUESTS, length)
        rows: list[dict[str, Any]] = [
            {"prompt": text, "input_tokens": length, "output_tokens": parameters.output_tokens} for text in texts
        ]
        return table(rows[:count], rows[count:])


def random_texts(tokenizer: Tokenizer, draw: Random, count: int, length: int) -> list[str]:
    """Texts of `length` tokens each; no two begin with the same token as long as there are enough.

    Text is tokenized to other tokens than it was made of, so a text is cut or gets more until its length is right;
    `ServelabError` if one never has it.
    """
    words = _words(tokenizer)
    first = draw.sample(words, len(words))
    tokens = [[first[index % len(first)], *draw.choices(words, k=length - 1)] for index in range(count)]
    texts: dict[int, str] = {}
    for _ in range(_TRIES):
        missing = [index for index in range(count) if index not in texts]
        made = [tokenizer.decode(tokens[index]).strip() for index in missing]
        for index, text, found in zip(missing, made, _encoded(tokenizer, made), strict=True):
            if len(found) == length:
                texts[index] = text
            else:
                tokens[index] = [*found[:length], *draw.choices(words, k=max(0, length - len(found)))]
        if len(texts) == count:
            return [texts[index] for index in range(count)]
    raise ServelabError(
        f"text of random tokens never has {length:,} tokens with this model's tokenizer; use `kind: random`, which "
        "sends token ids"
    )


def _encoded(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    return [each.ids for each in tokenizer.encode_batch(list(texts), add_special_tokens=False)]


def _words(tokenizer: Tokenizer) -> list[int]:
    """Ids of the tokens that are a word; of all ordinary ones in a vocabulary without many."""
    ids = ordinary_tokens(tokenizer)
    words = [each for each in ids if _WORD.fullmatch(tokenizer.id_to_token(each) or "")]
    return words if len(words) >= _FEWEST_WORDS else ids


WORKLOADS.register(RandomText.kind, RandomText())
