"""Contains: the expected words are somewhere in the answer, as whole words."""

from __future__ import annotations

import re

from servelab.answers.graders import GRADERS


def contains(text: str, expected: str) -> bool:
    """Whether the answer has the expected words, in their order and without regard to case."""
    words = " ".join(expected.split())
    if not words:
        return not text.strip()
    pattern = rf"(?<!\w){re.escape(words)}(?!\w)"
    return re.search(pattern, " ".join(text.split()), re.IGNORECASE) is not None


GRADERS.register("contains", contains)
