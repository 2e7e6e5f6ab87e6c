"""Preflight: checks a study before any accelerator is reserved; each check reports what it saw and what to do.

A check is one file that registers itself. It reserves no device and changes nothing. If it cannot decide on this
machine, it reports `unknown`, never `ok`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from servelab.core.registry import Registry
from servelab.core.run_spec import Strict
from servelab.search.preflight.place import Place
from servelab.study.project import Project

Verdict = Literal["ok", "warning", "error", "unknown"]


@dataclass(frozen=True)
class Finding:
    """Result of a check for one engine, model or candidate."""

    of: str
    """Engine, model or candidate."""
    verdict: Verdict
    saw: str
    action: str | None = None
    """What to do about it; None if there is nothing to do."""


@dataclass(frozen=True)
class Check:
    """One check; `look` returns a finding for each engine, model or candidate."""

    name: str
    title: str
    """What it checks, for the documentation."""
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

    Without `ask`, no program is started and the network is not used, so that the answer comes at once.
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
