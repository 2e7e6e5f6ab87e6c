"""A bar of progress on a terminal, below the last line of output.

The cursor stays on the line above the bar, so what a job prints in between does not run into it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable

_ERASE = "\r\033[J"
"""From the cursor to the end of the screen."""
_ABOVE = "\033[1A\r"
_CELLS = 24


class ProgressBar:
    """Jobs that are done, and what is left of the stage that is being measured."""

    def __init__(self, columns: Callable[[], int] = lambda: shutil.get_terminal_size().columns) -> None:
        self._columns = columns
        self._done = self._total = 0
        self._stage = ""

    def jobs(self, done: int, total: int) -> None:
        """How many jobs are done, of those that are planned so far."""
        self._done, self._total = done, total

    def stage(self, text: str) -> None:
        """What is left of a stage."""
        self._stage = text

    def below(self, text: str) -> str:
        """What to write for lines of output: the bar is erased, and drawn again below them."""
        return f"{_ERASE}{text}\n{self._drawn()}" if text else _ERASE + self._drawn()

    def erased(self) -> str:
        """What to write at the end."""
        return _ERASE if self._total else ""

    def _drawn(self) -> str:
        if not self._total:
            return ""
        full = round(_CELLS * self._done / self._total)
        text = f"{'█' * full}{'░' * (_CELLS - full)} {self._done} of {self._total} jobs"
        text += f"; {self._stage}" if self._stage else ""
        return f"\n{text[: self._columns() - 1]}{_ABOVE}"
