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


_NUMBER = re.compile(r"-?[$0-9.,]{2,}|-?[0-9]+")
_MARKED = re.compile(r"#### (-?[0-9.,]+)")
_IGNORED = re.compile(r",|\$|\.$")


def _gsm8k_plain(text: str) -> str:
    return _IGNORED.sub("", text.rpartition("#### ")[2]).lower()


def last_number(text: str, expected: str) -> bool:
    """Whether the last number of the answer is the expected one; false if it has none."""
    found = _NUMBER.findall(text)
    return bool(found) and _gsm8k_plain(found[-1].strip()) == _gsm8k_plain(expected)


def marked_number(text: str, expected: str) -> bool:
    """Whether the first number after `#### ` is the expected one; false if there is none."""
    found = _MARKED.search(text)
    return found is not None and _gsm8k_plain(found[1]) == _gsm8k_plain(expected)


GRADERS.register("last_number", last_number)
GRADERS.register("marked_number", marked_number)
