"""Live progress on stderr: one line that is rewritten on a terminal, a plain line every 10 s in a log."""

from __future__ import annotations

import sys
from typing import TextIO

from servelab.measure.load.board import Board
from servelab.measure.load.clock import clock

_TERMINAL_INTERVAL_S = 0.25
_LOG_INTERVAL_S = 10.0


class LoadProgress:
    """Prints how far the round is. Tokens are estimated from bytes, because nothing is parsed yet."""

    def __init__(self, board: Board, requests: int, last_scheduled_s: float, stream: TextIO | None = None) -> None:
        self._board, self._requests, self._last_scheduled_s = board, requests, last_scheduled_s
        self._stream = stream or sys.stderr
        self._terminal = self._stream.isatty()
        self._interval_s = _TERMINAL_INTERVAL_S if self._terminal else _LOG_INTERVAL_S
        self._started_at = self._printed_at = clock()
        self._printed_tokens = 0

    def start(self, origin: float) -> None:
        """Sets the start of the round."""
        self._started_at = self._printed_at = origin

    def show(self, *, last: bool = False) -> None:
        """Writes a line if one is due; always writes the last one."""
        now = clock()
        passed_s = now - self._printed_at
        if passed_s < self._interval_s and not last:
            return
        totals = self._board.totals()
        elapsed_s = max(now - self._started_at, 1e-9)
        rate = totals.tokens / elapsed_s if last else (totals.tokens - self._printed_tokens) / passed_s
        self._printed_at, self._printed_tokens = now, totals.tokens
        text = (
            f"{elapsed_s:.1f} s: {totals.done} of {self._requests} requests, {totals.in_flight} in flight, "
            f"{totals.failed} failed, about {rate:,.0f} output tokens/s"
        )
        if totals.done and totals.done < self._requests and not last:
            left_s = elapsed_s * (self._requests - totals.done) / totals.done
            text += f", about {max(left_s, self._last_scheduled_s - elapsed_s):.0f} s left"
        if self._terminal:
            self._stream.write(f"\r\x1b[K{text}" + ("\n" if last else ""))
        else:
            self._stream.write(text + "\n")
        self._stream.flush()
