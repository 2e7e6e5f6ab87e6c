"""Instruments: ways to compare a candidate's answers with the baseline's. Each is one file that registers itself."""

from __future__ import annotations

from typing import Protocol

from servelab.answers.comparison import Allowed, Comparison, InstrumentFinding
from servelab.core.registry import Registry


class Instrument(Protocol):
    """One way to compare."""

    name: str

    def judges(self, allowed: Allowed) -> bool:
        """Whether it may say `changes answers` of a candidate by chance, so that it shares the error of 5 %."""

    def find(self, comparison: Comparison) -> InstrumentFinding | None:
        """What it finds; None if the answers have nothing for it."""


INSTRUMENTS: Registry[Instrument] = Registry("answers instrument")
INSTRUMENTS.load(__name__)
