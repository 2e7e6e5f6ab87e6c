"""GSM8K: the graders of lm-evaluation-harness (tasks `gsm8k` and `gsm8k_cot_zeroshot`, version 3).

`last_number` is its `flexible-extract`, which takes the last number of an answer, and `marked_number` its
`strict-match`, which takes the first one after `####`. What is found and what is expected are then compared without
case, commas, dollar signs, a full stop at the end, and all up to a last `#### `.
"""

from __future__ import annotations

import re

from servelab.answers.graders import GRADERS

_NUMBER = re.compile(r"-?[$0-9.,]{2,}|-?[0-9]+")
_MARKED = re.compile(r"#### (-?[0-9.,]+)")
_IGNORED = re.compile(r",|\$|\.$")


def _plain(text: str) -> str:
    return _IGNORED.sub("", text.rpartition("#### ")[2]).lower()


def last_number(text: str, expected: str) -> bool:
    """Whether the last number of the answer is the expected one; false if it has none."""
    found = _NUMBER.findall(text)
    return bool(found) and _plain(found[-1].strip()) == _plain(expected)


def marked_number(text: str, expected: str) -> bool:
    """Whether the first number after `#### ` is the expected one; false if there is none."""
    found = _MARKED.search(text)
    return found is not None and _plain(found[1]) == _plain(expected)


GRADERS.register("last_number", last_number)
GRADERS.register("marked_number", marked_number)
