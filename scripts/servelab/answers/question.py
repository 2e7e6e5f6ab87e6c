"""A question to a served model, its answer, and graders, which say whether it is right."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from servelab.core.registry import Registry


@dataclass(frozen=True)
class Question:
    """One request, sent greedily (temperature 0): `messages` to the chat endpoint, or `prompt` to completions."""

    id: str
    """Unique in its set."""
    max_tokens: int
    """Most tokens of the answer."""
    prompt: str | None = None
    messages: tuple[Mapping[str, str], ...] | None = None
    """Objects with `role` and `content`, as OpenAI's chat endpoint takes them."""
    expected: str | None = None
    """The right answer, for the grader; None if the question is not graded."""
    grader: str = "exact"
    """Name in `GRADERS`; used only with `expected`."""
    stop: tuple[str, ...] = ()
    """Texts that end the answer; they are not part of it."""


@dataclass(frozen=True)
class Answer:
    """The answer of one server start to one question."""

    question_id: str
    text: str
    completion_tokens: int | None
    """As the server counted them; None if it did not."""
    finish_reason: str | None
    """`stop`, `length` or the server's own word; None if there is no answer."""
    correct: bool | None = None
    """The grade; None if the question is not graded."""
    failure: str | None = None
    """Why there is no answer (a refused request, a time limit); None if there is one, even an empty one."""


def by_question(answers: Sequence[Answer]) -> dict[str, Answer]:
    """The answers of one start by question, without those with a `failure`."""
    return {answer.question_id: answer for answer in answers if answer.failure is None}


Grader = Callable[[str, str], bool]
"""Takes the answer's text and the expected one."""

GRADERS: Registry[Grader] = Registry("grader")

_NUMBER = re.compile(r"-?[$0-9.,]{2,}|-?[0-9]+")
_IGNORED = re.compile(r",|\$|\.$")


def grade(grader: str, text: str, expected: str | None) -> bool | None:
    """Whether an answer is right; None without an expected one. `ConfigError` if there is no such grader."""
    check = GRADERS.get(grader)
    return None if expected is None else check(text, expected)


def _plain(text: str) -> str:
    return " ".join(text.casefold().split()).removesuffix(".").rstrip()


def exact(text: str, expected: str) -> bool:
    """Whether both are the same words, without case, extra white space, and a full stop at the end."""
    return _plain(text) == _plain(expected)


def contains(text: str, expected: str) -> bool:
    """Whether the answer contains the expected words as whole words, in their order and without case."""
    words = " ".join(expected.split())
    if not words:
        return not text.strip()
    pattern = rf"(?<!\w){re.escape(words)}(?!\w)"
    return re.search(pattern, " ".join(text.split()), re.IGNORECASE) is not None


def _number(text: str) -> str:
    """A number without commas, dollar signs, a full stop at the end, and all up to a last `#### `."""
    return _IGNORED.sub("", text.rpartition("#### ")[2]).lower()


def last_number(text: str, expected: str) -> bool:
    """Whether the last number of the answer is the expected one."""
    found = _NUMBER.findall(text)
    return bool(found) and _number(found[-1].strip()) == _number(expected)


GRADERS.register("exact", exact)
GRADERS.register("contains", contains)
GRADERS.register("last_number", last_number)
