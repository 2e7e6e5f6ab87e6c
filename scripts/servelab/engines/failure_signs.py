"""Why a server failed, by patterns for the lines of its log."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_MOST_LINES = 12
_ERROR = re.compile(r"error\b|exception\b|fatal|failed", re.IGNORECASE)
_HARMLESS = re.compile(r"\b(DEBUG|INFO|WARN(ING)?|[DIW])\b")
"""Log levels at which no engine reports the reason of a failure."""


@dataclass(frozen=True)
class Sign:
    """A pattern for lines of the engine's log that say why it failed."""

    reason: str
    pattern: re.Pattern[str]


def signs(reason: str, *patterns: str) -> list[Sign]:
    """Signs of one reason; upper and lower case are equal."""
    return [Sign(reason, re.compile(pattern, re.IGNORECASE)) for pattern in patterns]


def explain(log: Iterable[str], signs: Sequence[Sign], prefix: re.Pattern[str]) -> tuple[str | None, list[str]]:
    """The reason of a failure from a log, None if no sign is found, and at most 12 lines that show it.

    `prefix` is the part of a line before its text, which is left out. The most specific line is first. Without a sign
    they are the last lines that mention an error, or the last lines of the log.
    """
    lines, candidates = [], []
    for line in log:
        text = prefix.sub("", line).rstrip()
        lines.append(text)
        if not _HARMLESS.search(line[: len(line.rstrip()) - len(text)]):
            candidates.append(text)
    for sign in signs:
        if found := [text for text in candidates if sign.pattern.search(text)]:
            return sign.reason, _first(found)
    errors = [text for text in candidates if _ERROR.search(text)]
    return None, _first((errors or [line for line in lines if line])[::-1])


def _first(lines: list[str]) -> list[str]:
    return list(dict.fromkeys(line.strip() for line in lines))[:_MOST_LINES]
