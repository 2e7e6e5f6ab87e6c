"""Conversations from a data set: the first question with the length of its real answer, or several turns.

`sharegpt` has the filters and defaults of `vllm bench serve --dataset-name sharegpt`. Two differences avoid figures
that are too good: an answer at the start of a conversation is not used as a question, and a prompt is used once (a
repeated prompt would come from the prefix cache). `conversations` sends each turn with the server's earlier answers,
after a time to think.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

import pyarrow as pa
from pydantic import Field, ValidationError, ValidationInfo, field_validator

from servelab.assets.datasets import check_text, read_records
from servelab.assets.workloads import WARMUP_REQUESTS, WORKLOADS, Parameters, Workload, generator, open_dataset, table
from servelab.assets.workloads.random import encoded, warmup_like
from servelab.core.errors import ServelabError
from servelab.core.run_spec import Strict
from servelab.core.yaml_file import describe_validation_error

if TYPE_CHECKING:
    from tokenizers import Tokenizer

T = TypeVar("T")
ASKS = frozenset({"human", "user"})
ANSWERS = frozenset({"gpt", "assistant", "chatgpt", "bing", "bard"})
SHAPES = ("conversations", "messages", "conversation", "items")
"""Keys by which data sets name the turns of a record."""
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
        found = read_records(file, _first_exchange, cut=stored.part_of is not None)
        pairs = _each_once((each[0], each) for each in found if each is not None)
        generator(parameters.seed).shuffle(pairs)
        wanted = parameters.num_requests + WARMUP_REQUESTS
        rows: list[dict[str, Any]] = []
        for start in range(0, len(pairs), BATCH):
            rows += _fitting(pairs[start : start + BATCH], parameters, tokenizer)
            if len(rows) >= wanted:
                return table(rows[: parameters.num_requests], rows[parameters.num_requests : wanted])
        raise ServelabError(
            f"{stored.name}: {len(found):,} records have {len(pairs):,} different questions with an answer; "
            f"{len(rows):,} requests pass the length filters, {wanted:,} are needed "
            f"({parameters.num_requests:,} measured and {WARMUP_REQUESTS} for warm-up): ask for fewer or widen them"
        )


def _each_once(found: Iterable[tuple[str, T]]) -> list[T]:
    """The conversations found, each with its first question; of those with the same question the first."""
    first: dict[str, T] = {}
    for question, each in found:
        first.setdefault(question, each)
    return list(first.values())


def _first_exchange(record: Mapping[str, Any]) -> tuple[str, str] | None:
    """First question that is followed by a turn, and that turn if it is an answer; None without one."""
    for (speaker, question), (other, answer) in pairwise(_turns(record)):
        if speaker in ASKS:
            if question is None or answer is None:
                raise ValueError("a turn of the first exchange has no text")
            return (check_text(question), check_text(answer)) if other in ANSWERS else None
    return None


def _turns(record: Mapping[str, Any]) -> Iterator[tuple[str | None, str | None]]:
    """Speaker and text of each turn of a record, as data sets publish it; None where one is missing."""
    shape = next((name for name in SHAPES if name in record), None)
    if shape is None:
        raise ValueError(f"has none of {', '.join(SHAPES)}")
    if not isinstance(record[shape], list):
        raise ValueError(f"{shape}: is no list")
    for number, turn in enumerate(record[shape]):
        if not isinstance(turn, dict):
            raise ValueError(f"{shape}.{number}: is no object")
        speaker, text = turn.get("from", turn.get("role")), turn.get("value", turn.get("content"))
        if not isinstance(speaker, str | None) or not isinstance(text, str | None):
            raise ValueError(f"{shape}.{number}: `from` and `value`, or `role` and `content`, must be texts")
        yield speaker, text


def _fitting(
    pairs: list[tuple[str, str]], parameters: ShareGptParameters, tokenizer: Tokenizer
) -> Iterator[dict[str, Any]]:
    """Rows for the pairs that pass the length filters."""
    questions = encoded(tokenizer, [question for question, _ in pairs])
    answers = encoded(tokenizer, [answer for _, answer in pairs])
    longest_output = parameters.max_output_tokens or parameters.max_total_tokens
    for (question, _), question_tokens, answer_tokens in zip(pairs, questions, answers, strict=True):
        input_tokens, output_tokens = len(question_tokens), len(answer_tokens)
        if (
            parameters.min_input_tokens <= input_tokens <= parameters.max_input_tokens
            and parameters.min_output_tokens <= output_tokens <= longest_output
            and input_tokens + output_tokens <= parameters.max_total_tokens
        ):
            yield {"prompt": question, "input_tokens": input_tokens, "output_tokens": output_tokens}


WORKLOADS.register(ShareGpt.kind, ShareGpt())


_Role = Literal["system", "user", "assistant"]
_ROLES: dict[str, _Role] = {**dict.fromkeys(ASKS, "user"), **dict.fromkeys(ANSWERS, "assistant"), "system": "system"}


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


class Message(Strict):
    """A message of a chat."""

    role: _Role
    content: str = Field(min_length=1)


class _Message(Message):
    think_s: float | None = Field(None, ge=0, allow_inf_nan=False)


class _Line(Strict):
    messages: list[_Message] = Field(min_length=1)


class _Turn(NamedTuple):
    text: str
    answer: str | None
    think_s: float | None


class _Conversation(NamedTuple):
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
        read = read_records(file, _conversation, cut=stored.part_of is not None)
        found = _each_once((each.turns[0].text, each) for each in read if each.turns)
        generator(parameters.seed).shuffle(found)
        rows: list[dict[str, Any]] = []
        for conversation in found:
            turns = _rows(conversation, parameters, tokenizer)
            rows += turns if len(turns) >= parameters.min_turns else []
            if len(rows) >= parameters.num_requests:
                rows = rows[: parameters.num_requests]
                return table(rows, warmup_like(rows, tokenizer, parameters.seed))
        raise ServelabError(
            f"{stored.name}: {len(read):,} records have {len(found):,} different first questions; {len(rows):,} turns "
            f"pass the filters, {parameters.num_requests:,} are needed: ask for fewer or widen them"
        )


def _conversation(record: Mapping[str, Any]) -> _Conversation:
    """Turns up to the first that does not follow an answer, or that no chat endpoint takes.

    Such a turn is empty, or of another speaker. Lines with `messages` are checked as a whole instead.
    """
    messages = _checked(record) if "messages" in record else _sendable(record)
    system = messages[0].content if messages and messages[0].role == "system" else None
    said = messages[1:] if system is not None else messages
    turns = []
    for asked, answered in zip(said[::2], [*said[1::2], None], strict=False):
        if asked.role != "user" or (answered is not None and answered.role != "assistant"):
            break
        turns.append(_Turn(asked.content, None if answered is None else answered.content, asked.think_s))
    return _Conversation(system, turns)


def _sendable(record: Mapping[str, Any]) -> list[_Message]:
    messages = []
    for speaker, content in _turns(record):
        role = _ROLES.get(speaker or "")
        if role is None or not content:
            break
        messages.append(_Message.model_construct(role=role, content=check_text(content), think_s=None))
    return messages


def _checked(record: Mapping[str, Any]) -> list[_Message]:
    messages = record["messages"]
    if isinstance(messages, list) and all(isinstance(each, dict) for each in messages):  # data sets have `name: null`
        messages = [{key: value for key, value in each.items() if value is not None} for each in messages]
    try:
        messages = _Line.model_validate({"messages": messages}).messages
    except ValidationError as error:
        raise ValueError(describe_validation_error(error, "", _Line).removeprefix(": ")) from None
    for message in messages:
        check_text(message.content)
    spoken = [message.role for message in (messages[1:] if messages[0].role == "system" else messages)]
    if not spoken or any(role != ("user", "assistant")[place % 2] for place, role in enumerate(spoken)):
        raise ValueError("messages: write a system message first, if any, then user and assistant in turn")
    return messages


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
