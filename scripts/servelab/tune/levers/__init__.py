"""Levers: what an expert would try on a command. Each is a function, in the file of its theme.

A lever looks at the situation and proposes candidates, the best first and each with its reason, or says why it proposes
none. Its gains are those of published pages, of one run each; nothing here was measured by this project.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from servelab.core.registry import Registry
from servelab.tune.situation import Situation


@dataclass(frozen=True)
class Proposal:
    """A candidate, as changes on the command."""

    label: str
    reason: str
    gain: str
    """Its gain on published pages."""
    cost: str = ""
    """Its cost besides accelerator hours."""
    engine: str | None = None
    model: str | None = None
    """Name on the hub of the weights to serve instead."""
    options: dict[str, Any] = field(default_factory=dict)
    arguments: dict[str, Any] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    accelerators: int | None = None
    on: str | None = None
    """Engine that it is for; None for all of the study."""
    is_sure: bool = False
    """Whether several public measurements or the engine's source agree that it is worth a try."""


Propose = Callable[[Situation], Sequence[Proposal] | str]


@dataclass(frozen=True)
class Lever:
    """One thing to change."""

    name: str
    rank: int
    """Place in the order in which an expert tries them; each is tried on the best of those before."""
    title: str
    propose: Propose
    source: str


LEVERS: Registry[Lever] = Registry("lever")


def lever(name: str, rank: int, title: str, source: str) -> Callable[[Propose], Propose]:
    """Registers a function as a lever."""

    def register(propose: Propose) -> Propose:
        LEVERS.register(name, Lever(name, rank, title, propose, source))
        return propose

    return register


LEVERS.load(__name__)
