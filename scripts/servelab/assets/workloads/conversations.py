"""Conversations of several turns: each turn is sent with the server's own earlier answers, after a time to think."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
from pydantic import Field, ValidationError, ValidationInfo, field_validator

from servelab.assets.datasets import iter_records
from servelab.assets.workloads import WORKLOADS, Parameters, Workload, generator, open_dataset, table
from servelab.assets.workloads.random import warmup_like
from servelab.assets.workloads.sharegpt import ANSWERS, ASKS
from servelab.core.errors import ServelabError
from servelab.core.run_spec import Strict
from servelab.core.yaml_file import describe_validation_error

if TYPE_CHECKING:
    from tokenizers import Tokenizer

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
        """See `Workload.longest_tokens`."""
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
