"""Preflight: what can be told of a study before any accelerator is held, each check with what it saw and what to do.

A check is one file that registers itself. It holds no device and changes nothing; what it cannot tell from here is
`unknown`, never `ok`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from servelab.preflight.place import Place
from servelab.project import Project
from servelab.registry import Registry
from servelab.spec import Strict

Verdict = Literal["ok", "warning", "error", "unknown"]


@dataclass(frozen=True)
class Finding:
    """What a check makes of one thing."""

    of: str
    """Engine, model or candidate."""
    verdict: Verdict
    saw: str
    action: str | None = None
    """What to do about it; None where there is nothing to do."""


@dataclass(frozen=True)
class Check:
    """One check; `look` gives a finding for each thing it looks at."""

    name: str
    title: str
    """What it looks at, for the documentation."""
    look: Callable[[Place], Iterable[Finding]]


class Row(Strict):
    """A row of the table."""

    study: str
    of: str
    check: str
    verdict: Verdict
    saw: str
    action: str | None


CHECKS: Registry[Check] = Registry("preflight check")


def preflight(project: Project, results: Path, *, ask: bool = True) -> list[Row]:
    """All findings of a study, in order of checks.

    Without `ask` no program is started and nothing is asked over the network: what is left is known at once.
    """
    place = Place(project, results, ask=ask)
    return [
        Row(
            study=project.study.study,
            of=found.of,
            check=check.name,
            verdict=found.verdict,
            saw=found.saw,
            action=found.action,
        )
        for check in CHECKS
        for found in check.look(place)
    ]


CHECKS.load(__name__)
