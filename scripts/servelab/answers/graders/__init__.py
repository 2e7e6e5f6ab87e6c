"""Graders: whether an answer is right. Each is one file that registers itself."""

from __future__ import annotations

import re
from collections.abc import Callable

from servelab.core.registry import Registry

Grader = Callable[[str, str], bool]
"""Takes the answer's text and the expected one."""

GRADERS: Registry[Grader] = Registry("grader")


def grade(grader: str, text: str, expected: str | None) -> bool | None:
    """Whether an answer is right; None without an expected one. `ConfigError` if there is no such grader."""
    check = GRADERS.get(grader)
    return None if expected is None else check(text, expected)


GRADERS.load(__name__)


def _plain(text: str) -> str:
    return " ".join(text.casefold().split()).removesuffix(".").rstrip()


def exact(text: str, expected: str) -> bool:
    """Whether both are the same words. An empty answer is right only if nothing is expected."""
    return _plain(text) == _plain(expected)


GRADERS.register("exact", exact)


def contains(text: str, expected: str) -> bool:
    """Whether the answer has the expected words, in their order and without regard to case."""
    words = " ".join(expected.split())
    if not words:
        return not text.strip()
    pattern = rf"(?<!\w){re.escape(words)}(?!\w)"
    return re.search(pattern, " ".join(text.split()), re.IGNORECASE) is not None


GRADERS.register("contains", contains)
