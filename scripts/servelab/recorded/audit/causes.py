"""What a wrong percentage or figure may have been computed or copied from: the first cause that gives its digits."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from itertools import chain
from pathlib import Path

from servelab.core.errors import ConfigError
from servelab.core.yaml_file import metric_label
from servelab.metrics.objective import Basis
from servelab.recorded.audit import Evidence
from servelab.recorded.audit.rounding import change_percent, judge, on_basis, plain
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


_BASES: tuple[Basis, ...] = ("deployment", "accelerator", "node")
_STATISTICS = ("mean", "median", "p99")
_RATES = ("total_tokens_per_s", "output_tokens_per_s", "requests_per_s")


def cause_of_change(claim: ChangeClaim, evidence: Evidence) -> str | None:
    """The likely cause of a contradicted percentage; None if none is found."""
    side, against = (_figure(evidence, claim, name) for name in (claim.candidate, claim.against))
    if side is None or against is None:
        return None
    causes = chain(
        _published_figures(claim, evidence, side, against),
        _other_bases(claim, evidence),
        _swapped(claim, side, against),
        _other_statistics(claim, evidence),
        _other_rates(claim, evidence),
        _other_rows(claim, evidence, side, against),
        _other_workloads(claim, evidence),
        _cut_off(claim, side, against),
        other_pages_change(claim, evidence),
    )
    return next(causes, None)


def cause_of_figure(claim: FigureClaim, evidence: Evidence) -> str | None:
    """The log that does have a contradicted figure; None if none does."""
    causes = chain(copied_table(claim, evidence), _other_logs(claim, evidence), other_page(claim, evidence))
    return next(causes, None)


def _other_logs(claim: FigureClaim, evidence: Evidence) -> Iterator[str]:
    """Logs of the study that have a contradicted figure."""
    study = evidence.study
    for workload in dict.fromkeys((claim.workload, *study.workloads)):
        for name in study.candidates:
            for statistic in dict.fromkeys((claim.statistic, *_STATISTICS)):
                found = evidence.logs.quantity(name, workload, claim.metric, statistic)
                if found is not None and is_figure(claim.value, claim.half_unit, found):
                    of = f" ({statistic})" if statistic != claim.statistic else ""
                    yield f"it is in the log of {name}, {workload}{of}: copied from another row"


def _published_figures(claim: ChangeClaim, evidence: Evidence, side: Quantity, against: Quantity) -> Iterator[str]:
    """A published figure that no log has."""
    for other in evidence.study.claims:
        if not isinstance(other, FigureClaim) or other.candidate not in (claim.candidate, claim.against):
            continue
        if any(getattr(other, name) != getattr(claim, name) for name in ("workload", "metric", "statistic")):
            continue
        stated = _on(evidence, claim.basis, other.candidate, Quantity(other.value, other.half_unit))
        pair = (stated, against) if other.candidate == claim.candidate else (side, stated)
        if _holds(claim, *pair):
            yield f"it follows from {other.printed}, published for {other.candidate} but not in its log"


def _other_bases(claim: ChangeClaim, evidence: Evidence) -> Iterator[str]:
    for basis in _BASES:
        sides = [
            None if found is None else _on(evidence, basis, name, found)
            for name in (claim.candidate, claim.against)
            for found in [evidence.logs.quantity(name, claim.workload, claim.metric, claim.statistic)]
        ]
        if basis != claim.basis and sides[0] and sides[1] and _holds(claim, sides[0], sides[1]):
            yield f"it holds per {basis}"


def _swapped(claim: ChangeClaim, side: Quantity, against: Quantity) -> Iterator[str]:
    if side.low > 0 and _holds(claim, against, side):
        yield f"it is {claim.against} against {claim.candidate}: the quotient is swapped"
    elif side.low > 0 and _holds(claim, against, side, sign=-1):
        yield f"it divides by the figure of {claim.candidate}: the quotient is swapped"
    elif _holds(claim, side, against, sign=-1):
        yield "its sign is wrong"


def _other_statistics(claim: ChangeClaim, evidence: Evidence) -> Iterator[str]:
    for statistic in _STATISTICS:
        if statistic != claim.statistic and _of_logs(claim, evidence, claim.workload, claim.metric, statistic):
            yield f"it is that of the {statistic}"


def _other_rates(claim: ChangeClaim, evidence: Evidence) -> Iterator[str]:
    for metric in _RATES:
        if (
            claim.metric in _RATES
            and metric != claim.metric
            and _of_logs(claim, evidence, claim.workload, metric, claim.statistic)
        ):
            yield f"it is that of {metric_label(metric)}"


def _other_rows(claim: ChangeClaim, evidence: Evidence, side: Quantity, against: Quantity) -> Iterator[str]:
    for name in evidence.study.candidates:
        other = None if name in (claim.candidate, claim.against) else _figure(evidence, claim, name)
        if other is not None and other.low > 0 and _holds(claim, side, other):
            yield f"it is {claim.candidate} against {name}: another row"
        elif other is not None and _holds(claim, other, against):
            yield f"it is {name} against {claim.against}: another row"


def _other_workloads(claim: ChangeClaim, evidence: Evidence) -> Iterator[str]:
    for workload in evidence.study.workloads:
        if workload != claim.workload and _of_logs(claim, evidence, workload, claim.metric, claim.statistic):
            yield f"it is that of {workload}"


def _cut_off(claim: ChangeClaim, side: Quantity, against: Quantity) -> Iterator[str]:
    computed = change_percent(side, against).value
    if abs(claim.value) < abs(computed) < abs(claim.value) + 2 * claim.half_unit:
        yield f"{plain(round(computed, 6))} was cut off, not rounded"


def _of_logs(claim: ChangeClaim, evidence: Evidence, workload: str, metric: str, statistic: str) -> bool:
    found = [
        None if quantity is None else _on(evidence, claim.basis, name, quantity)
        for name in (claim.candidate, claim.against)
        for quantity in [evidence.logs.quantity(name, workload, metric, statistic)]
    ]
    return found[0] is not None and found[1] is not None and found[1].low > 0 and _holds(claim, found[0], found[1])


def _figure(evidence: Evidence, claim: ChangeClaim, name: str) -> Quantity | None:
    """A candidate's figure on the claim's basis."""
    found = evidence.logs.quantity(name, claim.workload, claim.metric, claim.statistic)
    return None if found is None else _on(evidence, claim.basis, name, found)


def _on(evidence: Evidence, basis: Basis, name: str, quantity: Quantity) -> Quantity:
    used = evidence.study.candidates[name].accelerators
    return on_basis(quantity, basis, used, evidence.study.hardware.per_node)[0]


def _holds(claim: ChangeClaim, side: Quantity, against: Quantity, sign: int = 1) -> bool:
    return judge(sign * claim.value, claim.half_unit, change_percent(side, against)) != "contradicted"
