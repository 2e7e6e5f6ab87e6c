"""How alike the texts of two sides are, question by question."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, product

import numpy as np

from servelab.answers.question import Answers, Question

_COMPARED = 2000
"""Characters of each text that are compared; greedy texts that differ rarely meet again later."""


def agreement(questions: Sequence[Question], one: Sequence[Answers], other: Sequence[Answers]) -> float:
    """Mean share of questions with the same text, over all pairs of a start of each side."""
    return float(np.mean([_same(questions, *pair) for pair in product(one, other)]))


def floor(questions: Sequence[Question], starts: Sequence[Answers]) -> float | None:
    """The same between the starts of one side: below 1 the server is not deterministic; None with fewer than two."""
    shares = [_same(questions, *pair) for pair in combinations(starts, 2)]
    return float(np.mean(shares)) if shares else None


def _same(questions: Sequence[Question], one: Answers, other: Answers) -> float:
    return float(np.mean([(text := one.get(q.name)) is not None and text == other.get(q.name) for q in questions]))


def first_difference(one: str, other: str) -> int | None:
    """Position of the first character that differs, from 0; None if the texts are the same."""
    if one == other:
        return None
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def edit_share(one: str | None, other: str | None) -> float:
    """Levenshtein distance / length of the longer text, of the first 2,000 characters: 0 to 1; 1 if one is missing.

    https://en.wikipedia.org/wiki/Levenshtein_distance, a row at a time: within a row, insertions are a running minimum.
    """
    if one is None or other is None:
        return float(one is not other)
    a, b = (np.array([ord(each) for each in text[:_COMPARED]], dtype=np.int64) for text in (one, other))
    if not a.size or not b.size:
        return float(a.size != b.size)
    steps = np.arange(b.size + 1)
    row = steps.copy()
    for number, letter in enumerate(a, start=1):
        best = np.minimum(row[1:] + 1, row[:-1] + (b != letter))
        row = np.minimum.accumulate(np.concatenate([[number], best]) - steps) + steps
    return float(row[-1]) / max(a.size, b.size)


def most_different(
    questions: Sequence[Question], baseline: Answers, candidate: Answers
) -> Iterator[tuple[Question, float]]:
    """Questions with their `edit_share`, those whose texts differ most first; equal texts are left out."""
    shares = [
        (question, edit_share(baseline.get(question.name), candidate.get(question.name))) for question in questions
    ]
    yield from sorted((each for each in shares if each[1] > 0), key=lambda each: (-each[1], each[0].name))
