"""A question that a server is asked, and an answer it gave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from servelab.answers.graders import GRADERS


@dataclass(frozen=True)
class Question:
    """One prompt with what is known of its answer."""

    name: str
    """Its name, another one for each question."""
    prompt: str
    expected: str | None = None
    """The right answer; None if answers are only compared, not graded."""
    grader: str = "words"
    """Name in `GRADERS`."""
    max_tokens: int | None = None
    """Longest answer in tokens; None leaves that to the study."""

    def is_right(self, text: str | None) -> bool | None:
        """Whether an answer is right; no answer is wrong; None if the question is not graded."""
        if self.expected is None:
            return None
        return text is not None and GRADERS.get(self.grader)(text, self.expected)


Answers = Mapping[str, str | None]
"""Text of each answer by the question's name; None, or no entry, if the request failed."""


def without_answer(questions: Sequence[Question], starts: Sequence[Answers]) -> float:
    """Share of the questions that got no answer, over all starts."""
    missing = sum(answers.get(question.name) is None for question in questions for answers in starts)
    return missing / (len(questions) * len(starts))
