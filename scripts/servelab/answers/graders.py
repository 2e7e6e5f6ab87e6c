"""Graders: whether an answer is right.

`last_number` and `marked_number` are GSM8K's graders of lm-evaluation-harness (tasks `gsm8k` and `gsm8k_cot_zeroshot`,
version 3): its `flexible-extract` and its `strict-match`.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from servelab.core.registry import Registry

Grader = Callable[[str, str], bool]
"""Takes the answer's text and the expected one."""

GRADERS: Registry[Grader] = Registry("grader")

_NUMBER = re.compile(r"-?[$0-9.,]{2,}|-?[0-9]+")
_MARKED = re.compile(r"#### (-?[0-9.,]+)")
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


def marked_number(text: str, expected: str) -> bool:
    """Whether the first number after `#### ` is the expected one."""
    found = _MARKED.search(text)
    return found is not None and _number(found[1]) == _number(expected)


GRADERS.register("exact", exact)
GRADERS.register("contains", contains)
GRADERS.register("last_number", last_number)
GRADERS.register("marked_number", marked_number)
