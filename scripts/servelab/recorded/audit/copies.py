"""Where a wrong figure may have been copied from: another table's workload, or a study that was published elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

from servelab.core.errors import ConfigError
from servelab.recorded.audit import Evidence
from servelab.recorded.logs import Logs, Quantity
from servelab.study.recorded.published_claims import ChangeClaim, FigureClaim
from servelab.study.recorded.study import FILE, load_recorded

_LEAST_ALIKE = 3
"""Figures of a table that must come from one place before the table counts as copied."""
_LEAST_DIGITS = 4
"""Digits of a number below which another page has it by chance."""


def studies_beside(folder: Path) -> tuple[Logs, ...]:
    """The other recorded studies beside the one in `folder`, most logs first; one with a mistake is left out."""
    found = []
    for file in sorted(folder.resolve().parent.glob(f"*/{FILE}")):
        if file.parent == folder.resolve():
            continue
        try:
            found.append(Logs(load_recorded(file.parent), file.parent))
        except ConfigError:
            continue
    return tuple(sorted(found, key=lambda logs: -len(list(logs.study.log_files()))))


def is_figure(value: float, half_unit: float, quantity: Quantity) -> bool:
    """Whether a number is a figure, to the digits that both have."""
    return quantity.low - half_unit <= value <= quantity.high + half_unit


def copied_table(claim: FigureClaim, evidence: Evidence) -> Iterator[str]:
    """Another workload, or another study, that most of a wrong figure's table is from."""
    table = [each for each in evidence.study.claims if isinstance(each, FigureClaim) and _beside(each, claim)]
    wrong = [each for each in table if not _is_own(each, evidence)]
    for workload in evidence.study.workloads:
        alike = [each for each in wrong if _has(evidence.logs, each.candidate, workload, each)]
        if claim in alike and _is_most(alike, wrong):
            yield f"copied table: {len(alike)} of its figures are those of {workload}"
    for logs in evidence.others:
        for workload in logs.study.workloads:
            alike = [each for each in wrong if _named(logs, workload, each)]
            if claim in alike and _is_most(alike, wrong):
                of = f"{workload} of study {logs.study.study}"
                yield f"copied table: {len(alike)} of its figures are in the logs of {of}"


def other_page(claim: FigureClaim, evidence: Evidence) -> Iterator[str]:
    """A log of another study that has a wrong figure."""
    for logs in evidence.others:
        for workload in logs.study.workloads:
            if name := _named(logs, workload, claim):
                yield f"other page's figure: it is in the log of {name}, {workload}, of study {logs.study.study}"


def other_pages_change(claim: ChangeClaim, evidence: Evidence) -> Iterator[str]:
    """A percentage that another study's publication has."""
    if _digits(claim.printed) < _LEAST_DIGITS - 1:
        return
    for logs in evidence.others:
        for other in logs.study.claims:
            if isinstance(other, ChangeClaim) and (other.metric, other.printed, other.unit) == (
                claim.metric,
                claim.printed,
                claim.unit,
            ):
                pair = f"{other.candidate} against {other.against}"
                yield f"other page's figure: study {logs.study.study} has it for {pair}, {other.workload}"


def _beside(one: FigureClaim, other: FigureClaim) -> bool:
    return (one.where, one.workload) == (other.where, other.workload)


def _is_own(claim: FigureClaim, evidence: Evidence) -> bool:
    return _has(evidence.logs, claim.candidate, claim.workload, claim)


def _is_most(alike: list[FigureClaim], wrong: list[FigureClaim]) -> bool:
    return len(alike) >= _LEAST_ALIKE and 2 * len(alike) > len(wrong)


def _has(logs: Logs, candidate: str, workload: str, claim: FigureClaim) -> bool:
    found = logs.quantity(candidate, workload, claim.metric, claim.statistic)
    return found is not None and is_figure(claim.value, claim.half_unit, found)


def _named(logs: Logs, workload: str, claim: FigureClaim) -> str | None:
    """The candidate of another study whose log has a figure; None for one with so few digits that this is chance."""
    if _digits(claim.printed) < _LEAST_DIGITS:
        return None
    try:
        return next((name for name in logs.study.candidates if _has(logs, name, workload, claim)), None)
    except ConfigError:  # a mistake in that study is its own audit's matter
        return None


def _digits(printed: str) -> int:
    return len(str(abs(Decimal(printed))).replace(".", "").lstrip("0"))
