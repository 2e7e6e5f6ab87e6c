"""Random prompts: token ids of an exact length, ids in groups that begin alike, and text of random words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import pyarrow as pa
from pydantic import Field

from servelab.assets.workloads import WARMUP_REQUESTS, WORKLOADS, Parameters, Workload, generator, table
from servelab.core.errors import ServelabError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_WORD = re.compile(r"[Ġ▁ ][A-Za-z]+")
"""Tokens of one word with the space before it: text made of them is tokenized to the same tokens."""
_FEWEST_WORDS = 100
_TRIES = 10


class RandomParameters(Parameters):
    """Exact lengths. Prompts are sent as token ids: text of random tokens would be tokenized to another length."""

    endpoint: Literal["completions"] = "completions"
    input_tokens: int = Field(gt=0, description="Prompt length in the model's own tokens.")
    output_tokens: int = Field(gt=0, description="Output length to force, in tokens.")


class RandomTokens(Workload):
    """Uniform draws from the model's ordinary tokens; no two prompts share a prefix."""

    kind = "random"
    version = "2"
    Parameters: ClassVar[type[Any]] = RandomParameters
    sends_token_ids = True

    def longest_tokens(self, parameters: Any) -> int:
        return int(parameters.input_tokens + parameters.output_tokens)

    def shared_input(self, parameters: Mapping[str, Any]) -> float:
        return 0.0

    def make(self, parameters: Any, tokenizer: Tokenizer, dataset: Path | None) -> pa.Table:
        count, draw = parameters.num_requests, generator(parameters.seed)
        lengths = [parameters.input_tokens] * (count + WARMUP_REQUESTS)
        rows = _rows(random_prompts(tokenizer, draw, lengths), parameters.output_tokens)
        return table(rows[:count], rows[count:])


class RandomTextParameters(Parameters):
    """Lengths in the model's own tokens, without chat template."""

    input_tokens: int = Field(gt=0, description="Prompt length, counted in the text that is sent.")
    output_tokens: int = Field(gt=0, description="Output length to force, in tokens.")


class RandomText(RandomTokens):
    """Text of random words: what other clients' `random` sends to a chat endpoint."""

    kind = "random_text"
    version = "1"
    Parameters = RandomTextParameters
    sends_token_ids = False

    def make(self, parameters: Any, tokenizer: Tokenizer, dataset: Path | None) -> pa.Table:
        count, length = parameters.num_requests, parameters.input_tokens
        texts = _random_texts(tokenizer, generator(parameters.seed), count + WARMUP_REQUESTS, length)
        rows: list[dict[str, Any]] = [
            {"prompt": text, "input_tokens": length, "output_tokens": parameters.output_tokens} for text in texts
        ]
        return table(rows[:count], rows[count:])


class SharedPrefixParameters(Parameters):
    """Exact lengths in the model's own tokens. Prompts are sent as token ids."""

    endpoint: Literal["completions"] = "completions"
    groups: int = Field(gt=0, description="Number of different prefixes; requests go round the groups.")
    prefix_tokens: int = Field(gt=0, description="Length of each group's common beginning, in tokens.")
    suffix_tokens: int = Field(gt=0, description="Length of what follows it, different in each request, in tokens.")
    output_tokens: int = Field(gt=0, description="Output length to force, in tokens.")


class SharedPrefix(Workload):
    """Random tokens in groups with the same beginning, as with a system prompt."""

    kind = "shared_prefix"
    version = "1"
    Parameters = SharedPrefixParameters
    sends_token_ids = True

    def longest_tokens(self, parameters: SharedPrefixParameters) -> int:
        return parameters.prefix_tokens + parameters.suffix_tokens + parameters.output_tokens

    def shared_input(self, parameters: Mapping[str, Any]) -> float:
        """(requests - groups) x prefix / (requests x (prefix + suffix)): a prefix's first request is in no cache."""
        given = SharedPrefixParameters.model_validate(parameters)
        later, tokens = max(0, given.num_requests - given.groups), given.prefix_tokens + given.suffix_tokens
        return later * given.prefix_tokens / (given.num_requests * tokens)

    def make(self, parameters: SharedPrefixParameters, tokenizer: Tokenizer, dataset: Path | None) -> pa.Table:
        """See `Workload.make`; the warm-up has prefixes of its own."""
        draw, count, groups = generator(parameters.seed), parameters.num_requests, parameters.groups
        prefixes = list(random_prompts(tokenizer, draw, [parameters.prefix_tokens] * 2 * groups))
        suffixes = list(random_prompts(tokenizer, draw, [parameters.suffix_tokens] * (count + WARMUP_REQUESTS)))
        measured = [[*prefixes[index % groups], *suffix] for index, suffix in enumerate(suffixes[:count])]
        warmup = [[*prefixes[groups + index % groups], *suffix] for index, suffix in enumerate(suffixes[count:])]
        return table(_rows(measured, parameters.output_tokens), _rows(warmup, parameters.output_tokens))


def _rows(prompts: Iterable[list[int]], output_tokens: int) -> list[dict[str, Any]]:
    return [{"prompt_token_ids": each, "input_tokens": len(each), "output_tokens": output_tokens} for each in prompts]


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
    return [
        {"prompt": text, "input_tokens": len(ids), "output_tokens": row["output_tokens"]}
        for text, ids, row in zip(texts, encoded(tokenizer, texts), like, strict=True)
    ]


def _random_texts(tokenizer: Tokenizer, draw: Random, count: int, length: int) -> list[str]:
    """Texts of `length` tokens each; no two begin with the same token as long as there are enough.

    Text is tokenized to other tokens than it was made of, so a text is cut or extended until its length is right;
    `ServelabError` if one never has it.
    """
    ids = ordinary_tokens(tokenizer)
    words = [each for each in ids if _WORD.fullmatch(tokenizer.id_to_token(each) or "")]
    words = words if len(words) >= _FEWEST_WORDS else ids
    first = draw.sample(words, len(words))
    tokens = [[first[index % len(first)], *draw.choices(words, k=length - 1)] for index in range(count)]
    texts: dict[int, str] = {}
    for _ in range(_TRIES):
        missing = [index for index in range(count) if index not in texts]
        made = [tokenizer.decode(tokens[index]).strip() for index in missing]
        for index, text, found in zip(missing, made, encoded(tokenizer, made), strict=True):
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


def encoded(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    """Token ids of each text, without special tokens."""
    return [each.ids for each in tokenizer.encode_batch(list(texts), add_special_tokens=False)]


def ordinary_tokens(tokenizer: Tokenizer) -> list[int]:
    """Ids of all tokens that are not special; `ServelabError` if there are none."""
    special = tokenizer.get_added_tokens_decoder()
    ids = sorted(set(tokenizer.get_vocab(with_added_tokens=True).values()) - special.keys())
    if not ids:
        raise ServelabError("the model's tokenizer has no ordinary tokens for random prompts")
    return ids


for _kind in (RandomTokens(), RandomText(), SharedPrefix()):
    WORKLOADS.register(_kind.kind, _kind)
