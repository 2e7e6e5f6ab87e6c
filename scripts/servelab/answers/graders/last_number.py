"""The last number of the answer, as lm-evaluation-harness's `flexible-extract` of GSM8K takes it."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation

from servelab.answers.graders import GRADERS

_NUMBER = re.compile(r"-?\$?\d[\d,]*(?:\.\d+)?")


def ends_in_number(text: str, expected: str) -> bool:
    """Whether the last number in the text equals the expected one."""
    found = _NUMBER.findall(text)
    return bool(found) and _value(found[-1]) == _value(expected) is not None


def _value(text: str) -> Decimal | None:
    try:
        return Decimal(text.replace(",", "").replace("$", "").strip())
    except InvalidOperation:
        return None


GRADERS.register("last_number", ends_in_number)
