"""The likely cause of a wrong percentage or figure: the first of a few known mistakes that gives its digits."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from itertools import chain
from pathlib import Path

from servelab.core.errors import ConfigError
from servelab.recorded.audit import AuditEvidence
from servelab.recorded.audit.rounding import change_percent, judge, on_basis
from servelab.recorded.logs import Logs, Quantity
from servelab.study.recorded.published_claims import ChangeClaim, FigureClaim
from servelab.study.recorded.study import FILE, load_recorded

_LEAST_DIGITS = 4
"""Another page has a number with fewer digits by chance."""


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


def cause_of_figure(claim: FigureClaim, evidence: AuditEvidence) -> str | None:
    """The log that has a contradicted figure: another row's, or another study's; None if no log has it."""
    return next(chain(_other_rows(claim, evidence), _other_pages(claim, evidence)), None)


def _other_rows(claim: FigureClaim, evidence: AuditEvidence) -> Iterator[str]:
    for workload in dict.fromkeys((claim.workload, *evidence.study.workloads)):
        for name in evidence.study.candidates:
            for statistic in dict.fromkeys((claim.statistic, "mean", "median", "p99")):
                if _has(evidence.logs, name, workload, claim, statistic):
                    of = f" ({statistic})" if statistic != claim.statistic else ""
                    yield f"it is in the log of {name}, {workload}{of}: copied from another row"


def _other_pages(claim: FigureClaim, evidence: AuditEvidence) -> Iterator[str]:
    if len(str(abs(Decimal(claim.printed))).replace(".", "").lstrip("0")) < _LEAST_DIGITS:
        return
    for logs in evidence.others:
        for workload in logs.study.workloads:
            try:
                name = next((each for each in logs.study.candidates if _has(logs, each, workload, claim)), None)
            except ConfigError:  # reported by that study's own audit
                continue
            if name:
                yield f"other page's figure: it is in the log of {name}, {workload}, of study {logs.study.study}"


def _has(logs: Logs, candidate: str, workload: str, claim: FigureClaim, statistic: str | None = None) -> bool:
    found = logs.quantity(candidate, workload, claim.metric, statistic or claim.statistic)
    return found is not None and found.low - claim.half_unit <= claim.value <= found.high + claim.half_unit


def cause_of_change(claim: ChangeClaim, evidence: AuditEvidence) -> str | None:
    """The cause of a contradicted percentage: a published figure without a log, or a swapped quotient, or None."""
    side, against = (_figure(evidence, claim, name) for name in (claim.candidate, claim.against))
    if side is None or against is None:
        return None
    return next(chain(_published_figures(claim, evidence, side, against), _swapped(claim, side, against)), None)


def _published_figures(claim: ChangeClaim, evidence: AuditEvidence, side: Quantity, against: Quantity) -> Iterator[str]:
    for other in evidence.study.claims:
        if not isinstance(other, FigureClaim) or other.candidate not in (claim.candidate, claim.against):
            continue
        if any(getattr(other, name) != getattr(claim, name) for name in ("workload", "metric", "statistic")):
            continue
        stated = _on_basis(evidence, claim, other.candidate, Quantity(other.value, other.half_unit))
        pair = (stated, against) if other.candidate == claim.candidate else (side, stated)
        if _holds(claim, *pair):
            yield f"it follows from {other.printed}, published for {other.candidate} but not in its log"


def _swapped(claim: ChangeClaim, side: Quantity, against: Quantity) -> Iterator[str]:
    if side.low > 0 and _holds(claim, against, side):
        yield f"it is {claim.against} against {claim.candidate}: the quotient is swapped"
    elif side.low > 0 and _holds(claim, against, side, sign=-1):
        yield f"it divides by the figure of {claim.candidate}: the quotient is swapped"
    elif _holds(claim, side, against, sign=-1):
        yield "its sign is wrong"


def _figure(evidence: AuditEvidence, claim: ChangeClaim, name: str) -> Quantity | None:
    found = evidence.logs.quantity(name, claim.workload, claim.metric, claim.statistic)
    return None if found is None else _on_basis(evidence, claim, name, found)


def _on_basis(evidence: AuditEvidence, claim: ChangeClaim, name: str, quantity: Quantity) -> Quantity:
    used = evidence.study.candidates[name].accelerators
    return on_basis(quantity, claim.basis, used, evidence.study.hardware.per_node)[0]


def _holds(claim: ChangeClaim, side: Quantity, against: Quantity, sign: int = 1) -> bool:
    return judge(sign * claim.value, claim.half_unit, change_percent(side, against)) != "contradicted"
