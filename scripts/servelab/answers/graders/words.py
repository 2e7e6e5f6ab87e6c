"""The expected words, whole and in a row, in the first line that has any; case and punctuation do not count."""

from __future__ import annotations

import re

from servelab.answers.graders import GRADERS

_WORD = re.compile(r"\w+")


def _words(text: str) -> list[str]:
    return [word.casefold() for word in _WORD.findall(text)]


def has_words(text: str, expected: str) -> bool:
    """Whether the first line with a word has the expected words in a row."""
    wanted = _words(expected)
    given = next((words for line in text.splitlines() if (words := _words(line))), [])
    return any(given[at : at + len(wanted)] == wanted for at in range(len(given) - len(wanted) + 1))


GRADERS.register("words", has_words)
