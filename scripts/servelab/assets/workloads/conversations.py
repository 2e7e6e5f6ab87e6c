"""Conversations of several turns: each turn is sent with the server's own earlier answers, after a time to think."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pydantic import Field, ValidationError, ValidationInfo, field_validator

from servelab.assets.datasets import iter_records
from servelab.assets.workloads import WARMUP_REQUESTS, WORKLOADS, Parameters, Workload, generator, open_dataset, table
from servelab.assets.workloads.random import warmup_like
from servelab.core.errors import ServelabError
from servelab.core.run_spec import Strict
from servelab.core.yaml_file import describe_validation_error

if TYPE_CHECKING:
    from tokenizers import Tokenizer
from typing import TYPE_CHECKING, Literal

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


_Role = Literal["system", "user", "assistant"]
_SHAREGPT_ROLES: dict[str, _Role] = {
    **dict.fromkeys(ASKS, "user"),
    **dict.fromkeys(ANSWERS, "assistant"),
    "system": "system",
}


class ConversationsParameters(Parameters):
    """Which conversations, and how fast the user goes on; lengths in the model's own tokens, without chat template."""

    endpoint: Literal["chat"] = "chat"
    dataset_sha256: str = Field(description="sha256 of the file; the configuration names it as `dataset` instead.")
    min_turns: int = Field(2, ge=1, description="Conversations of fewer turns (questions of the user) are skipped.")
    max_turns: int | None = Field(None, ge=1, description="Later turns are left out; null is no limit.")
    think_s: float = Field(
        0.0, ge=0, allow_inf_nan=False, description="Seconds from an answer to the next turn, where the file has none."
    )
    output_tokens: int | None = Field(
        None, gt=0, description="Output length to force, in tokens; null takes that of the file's answer."
    )
    max_total_tokens: int = Field(
        2048, ge=2, description="A conversation ends before the turn that would make it longer than this."
    )

    @field_validator("max_turns")
    @classmethod
    def _is_not_below_min_turns(cls, most: int | None, given: ValidationInfo) -> int | None:
        if most is not None and most < given.data.get("min_turns", 1):
            raise ValueError(f"must be at least min_turns ({given.data['min_turns']})")
        return most


class _Message(Strict):
    role: _Role
    content: str = Field(min_length=1)
    think_s: float | None = Field(None, ge=0, allow_inf_nan=False)


class _Line(Strict):
    messages: list[_Message] = Field(min_length=1)


@dataclass(frozen=True)
class _Turn:
    text: str
    answer: str | None
    think_s: float | None


@dataclass(frozen=True)
class _Conversation:
    system: str | None
    turns: list[_Turn]


class Conversations(Workload):
    """The conversations that pass the filters, in seeded order, until there are `num_requests` turns."""

    kind = "conversations"
    version = "1"
    Parameters = ConversationsParameters
    sends_turns = True
    needs_dataset = True

    def longest_tokens(self, parameters: ConversationsParameters) -> int:
        return parameters.max_total_tokens

    def make(self, parameters: ConversationsParameters, tokenizer: Tokenizer, dataset: Path | None) -> pa.Table:
        """See `Workload.make`; the last conversation may be cut. The warm-up is text of random tokens."""
        stored, file = open_dataset(dataset, parameters.dataset_sha256)
        found = list(_conversations(file, cut=stored.part_of is not None))
        generator(parameters.seed).shuffle(found)
        rows: list[dict[str, Any]] = []
        for conversation in found:
            turns = _rows(conversation, parameters, tokenizer)
            rows += turns if len(turns) >= parameters.min_turns else []
            if len(rows) >= parameters.num_requests:
                rows = rows[: parameters.num_requests]
                return table(rows, warmup_like(rows, tokenizer, parameters.seed))
        raise ServelabError(
            f"{stored.name}: {len(rows):,} turns pass the filters, {parameters.num_requests:,} are needed: "
            "ask for fewer or widen them"
        )


def _conversations(file: Path, *, cut: bool) -> Iterator[_Conversation]:
    """Those of a ShareGPT file (`conversations`), or of lines with `messages`; repeated first turns are skipped."""
    seen: set[str] = set()
    for number, record in enumerate(iter_records(file, cut=cut), start=1):
        messages = _of_sharegpt(record) if "conversations" in record else _of_line(f"{file}: record {number:,}", record)
        conversation = _conversation(messages)
        if conversation.turns and conversation.turns[0].text not in seen:
            seen.add(conversation.turns[0].text)
            yield conversation


def _of_sharegpt(record: Mapping[str, Any]) -> list[_Message]:
    """Up to the first message that no chat endpoint takes: an empty one, or one of another speaker."""
    messages = []
    for turn in record["conversations"]:
        role, content = _SHAREGPT_ROLES.get(turn.get("from")), turn.get("value")
        if role is None or not content:
            break
        messages.append(_Message.model_construct(role=role, content=content, think_s=None))
    return messages


def _of_line(where: str, record: Mapping[str, Any]) -> list[_Message]:
    try:
        messages = _Line.model_validate(record).messages
    except ValidationError as error:
        raise ServelabError(describe_validation_error(error, where, _Line)) from None
    spoken = [message.role for message in (messages[1:] if messages[0].role == "system" else messages)]
    if not spoken or any(role != ("user", "assistant")[place % 2] for place, role in enumerate(spoken)):
        raise ServelabError(f"{where}: messages: write a system message first, if any, then user and assistant in turn")
    return messages


def _conversation(messages: list[_Message]) -> _Conversation:
    """Turns up to the first that does not follow an answer."""
    system = messages[0].content if messages and messages[0].role == "system" else None
    said = messages[1:] if system is not None else messages
    turns = []
    for asked, answered in zip(said[::2], [*said[1::2], None], strict=False):
        if asked.role != "user" or (answered is not None and answered.role != "assistant"):
            break
        turns.append(_Turn(asked.content, None if answered is None else answered.content, asked.think_s))
    return _Conversation(system, turns)


def _rows(
    conversation: _Conversation, parameters: ConversationsParameters, tokenizer: Tokenizer
) -> list[dict[str, Any]]:
    """The turns that are sent; the length of a later one's prompt supposes answers of the lengths that are forced."""
    system, turns = conversation.system, conversation.turns[: parameters.max_turns]
    said = 0 if system is None else _count(system, tokenizer)
    earlier = None if system is None else json.dumps([{"role": "system", "content": system}], ensure_ascii=False)
    rows: list[dict[str, Any]] = []
    for number, turn in enumerate(turns):
        output_tokens = parameters.output_tokens or _count(turn.answer or "", tokenizer)
        said += _count(turn.text, tokenizer)
        if not output_tokens or said + output_tokens > parameters.max_total_tokens:
            break
        think_s = parameters.think_s if turn.think_s is None else turn.think_s
        rows.append(
            {
                "prompt": turn.text,
                "input_tokens": said,
                "output_tokens": output_tokens,
                "earlier": None if number else earlier,
                "turn": number,
                "think_s": think_s if number else None,
            }
        )
        said += output_tokens
    return rows


def _count(text: str, tokenizer: Tokenizer) -> int:
    return len(tokenizer.encode(text, add_special_tokens=False).ids)


WORKLOADS.register(Conversations.kind, Conversations())
