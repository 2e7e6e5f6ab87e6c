"""Exact: the whole answer, without regard to case, to white space around and between words, and to a full stop."""

from __future__ import annotations

from servelab.answers.graders import GRADERS


def _plain(text: str) -> str:
    return " ".join(text.casefold().split()).removesuffix(".").rstrip()


def exact(text: str, expected: str) -> bool:
    """Whether both are the same words. An empty answer is right only if nothing is expected."""
    return _plain(text) == _plain(expected)


GRADERS.register("exact", exact)
