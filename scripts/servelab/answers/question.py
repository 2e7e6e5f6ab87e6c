"""A question to a served model, and what came back."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


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
    """Name in `graders.GRADERS`; used only with `expected`."""
    stop: tuple[str, ...] = ()
    """Texts that end the answer; they are not part of it."""


@dataclass(frozen=True)
class Answer:
    """What one server start answered to one question."""

    question_id: str
    text: str
    completion_tokens: int | None
    """As the server counted them; None if it did not."""
    finish_reason: str | None
    """`stop`, `length` or the server's own word; None if there is no answer."""
    correct: bool | None = None
    """The grade; None if the question is not graded."""
    first_token_logprobs: Mapping[str, float] | None = None
    """Natural log-probabilities of the likeliest first tokens, by token; None if the engine gives none."""
    failure: str | None = None
    """Why there is no answer (a refused request, a time limit); None if there is one, even an empty one."""


def by_question(answers: Sequence[Answer]) -> dict[str, Answer]:
    """The answers of one start by question, without those with a `failure`."""
    return {answer.question_id: answer for answer in answers if answer.failure is None}


def usable_logprobs(answer: Answer) -> dict[str, float] | None:
    """The first token's log-probabilities, if they are some: none is NaN or above 0, and they add up to 1 at most."""
    given = answer.first_token_logprobs
    if not given or any(math.isnan(value) or value > ROUNDING for value in given.values()):
        return None
    return dict(given) if math.fsum(math.exp(value) for value in given.values()) <= 1 + ROUNDING else None


ROUNDING = 1e-3
"""Servers print log-probabilities in few digits."""
