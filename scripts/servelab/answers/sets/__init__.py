"""Question sets: where questions come from. Each is one file that registers itself."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Protocol

from servelab.answers.question import Question
from servelab.core.registry import Registry


class QuestionSet(Protocol):
    """One source of questions; raise `version` when the same arguments give other questions."""

    version: str
    needs_file: bool

    def questions(self, file: Path | None, count: int | None, seed: int) -> list[Question]:
        """The questions: `count` of them by the seed's draw, or all; `ConfigError` if there are fewer.

        `file` is None unless `needs_file`.
        """


QUESTION_SETS: Registry[QuestionSet] = Registry("question set")


def drawn(total: int, count: int, seed: int) -> list[int]:
    """`count` of the positions below `total`, in order; the same for the same seed on every machine."""
    return sorted(random.Random(seed).sample(range(total), count))  # noqa: S311 (not for secrets)


QUESTION_SETS.load(__name__)
