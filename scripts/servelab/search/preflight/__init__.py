"""Preflight: checks a study before any accelerator is reserved; each check reports what it saw and what to do.

A check is one file that registers itself. It reserves no device and changes nothing. If it cannot decide on this
machine, it reports `unknown`, never `ok`.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
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
    """The fix; None if there is nothing to do."""


@dataclass(frozen=True)
class PreflightCheck:
    """One check; `look` returns a finding for each engine, model or candidate."""

    name: str
    title: str
    """The subject of the check, for the documentation."""
    look: Callable[[Place], Iterable[Finding]]


class PreflightRow(Strict):
    """A row of the table."""

    study: str
    of: str
    check: str
    verdict: Verdict
    saw: str
    action: str | None


CHECKS: Registry[PreflightCheck] = Registry("preflight check")


def preflight(project: Project, results: Path, *, ask: bool = True) -> list[PreflightRow]:
    """All findings of a study, in order of checks.

    Without `ask`, no program is started and the network is not used, so that the answer comes at once.
    """
    place = Place(project, results, ask=ask)
    study = project.study.study
    return [
        PreflightRow(study=study, check=check.name, **vars(found)) for check in CHECKS for found in check.look(place)
    ]


WIDTH = 120
_CHECK, _VERDICT, _OF = 12, 7, 34
_GAP = "  "
_SAW = WIDTH - _CHECK - _VERDICT - _OF - 3 * len(_GAP)
_ORDER: tuple[Verdict, ...] = ("error", "warning", "unknown", "ok")
_NAMED, _NAMED_WRONG = 3, 20


def render(study: str, rows: Sequence[PreflightRow]) -> str:
    """The table of one study: findings that differ only by candidate share a row; what to do is below it."""
    lines = [summary(study, rows), _line("check", "verdict", "of", "seen, and what to do")]
    for check, verdict, of, saw, action in _merged(rows):
        names = textwrap.wrap(of, _OF, break_on_hyphens=False)
        seen = textwrap.wrap(saw, _SAW)
        seen += textwrap.wrap(f"→ {action}", _SAW, subsequent_indent="  ") if action else []
        for number, row in enumerate(zip_longest(names, seen, fillvalue="")):
            lines.append(_line(*((check, verdict) if number == 0 else ("", "")), *row))
    return "\n".join(lines)


def troubles(rows: Sequence[PreflightRow]) -> list[str]:
    """One line per error and warning of a study, for a log."""
    return [
        f"{rows[0].study}: preflight: {verdict} in {check} of {of}: {saw}"
        for check, verdict, of, saw, _ in _merged(rows)
        if verdict in ("error", "warning")
    ]


def summary(study: str, rows: Sequence[PreflightRow]) -> str:
    """One line with the number of rows per verdict."""
    counts = Counter(row.verdict for row in rows)
    return f"{study}: {', '.join(f'{counts[verdict]} {verdict}' for verdict in _ORDER if counts[verdict])}"


def _merged(rows: Sequence[PreflightRow]) -> list[tuple[str, Verdict, str, str, str | None]]:
    """Rows grouped by equal findings, sorted by check; within a check, the worst first."""
    groups: dict[tuple[str, Verdict, str, str | None], list[str]] = {}
    for row in rows:
        groups.setdefault((row.check, row.verdict, row.saw, row.action), []).append(row.of)
    all_of = Counter(row.check for row in rows)
    merged = [
        (check, verdict, _names(of, all_of[check], verdict), saw, action)
        for (check, verdict, saw, action), of in groups.items()
    ]
    return sorted(merged, key=lambda row: (row[0], _ORDER.index(row[1])))


def _names(of: Sequence[str], all_of: int, verdict: Verdict) -> str:
    """Names for a row, not too many: `preflight.json` has them all."""
    if len(of) == all_of > 1:
        return f"all {all_of}"
    named = _NAMED if verdict == "ok" else _NAMED_WRONG
    return "; ".join(of[:named]) + (f" and {len(of) - named} more" if len(of) > named else "")


def _line(check: str, verdict: str, of: str, saw: str) -> str:
    return _GAP.join([check.ljust(_CHECK), verdict.ljust(_VERDICT), of.ljust(_OF), saw]).rstrip()


CHECKS.load(__name__)
