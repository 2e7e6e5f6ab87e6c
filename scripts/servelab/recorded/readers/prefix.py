"""What a logger writes before each line of a block, such as the time."""

from __future__ import annotations

import re

MOST_PREFIX = 500
"""Characters before a block's header: what a logger writes before each line."""
_PARTS = re.compile(r"(\d+|\s+)")
_SPACES, _DIGITS = re.compile(r"\s*"), re.compile(r"\d+")


class Prefix:
    """What a logger writes before each line, given that of the first line; digits and spaces may differ.

    Each part keeps what it has matched, and nothing is compiled: a hostile log has another prefix in each line.
    """

    def __init__(self, lead: str) -> None:
        self.lead = lead
        self._parts: list[str] | None = None

    def end(self, line: str) -> int | None:
        """Where it ends in a line; None if the line does not begin with it."""
        if line.startswith(self.lead) and not self.lead[-1:].isdecimal() and not self.lead[-1:].isspace():
            return len(self.lead)
        if self._parts is None:
            self._parts = _PARTS.split(self.lead)
        position = 0
        for number, part in enumerate(self._parts):
            if not number % 2:
                if not line.startswith(part, position):
                    return None
                position += len(part)
            elif part.isspace():
                position = _SPACES.match(line, position).end()  # type: ignore[union-attr]  # it matches nothing, too
            elif digits := _DIGITS.match(line, position):
                position = digits.end()
            else:
                return None
        return position

    def rest(self, line: str) -> str:
        """What follows it in a line; the whole line if it does not begin with it."""
        if not self.lead:
            return line
        end = self.end(line)
        return line if end is None else line[end:]
