"""Rules that recompute a published claim from the logs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from itertools import chain
from typing import Any

from servelab.core.errors import ConfigError
from servelab.core.yaml_file import metric_label
from servelab.metrics.definitions import METRICS
from servelab.metrics.objective import Basis, per_basis
from servelab.recorded.audit import (
    AuditEvidence,
    AuditFinding,
    Verdict,
    change_percent,
    claim_rule,
    difference,
    honest_rates,
    in_digits,
    judge,
    on_basis,
    plain,
    unsound_rates,
)
from servelab.recorded.audit.run_rules import served_alike
from servelab.recorded.logs import Logs, Quantity
from servelab.study.recorded.commands import read_command, same_command
from servelab.study.recorded.published_claims import (
    AcceleratorsClaim,
    ChangeClaim,
    ChosenClaim,
    Claim,
    DifferenceClaim,
    FigureClaim,
    OrderClaim,
    RecommendedClaim,
    SuccessClaim,
)

_LEAST_DIGITS = 4
"""Another page has a number with fewer digits by chance."""


@claim_rule("figure", FigureClaim)
def _figure(claim: FigureClaim, evidence: AuditEvidence) -> Iterator[AuditFinding]:
    """A candidate's figure is in its log; with fewer digits than there it is rounded."""
    words = f"{_metric(claim)} of {claim.candidate}, {claim.workload}"
    quantity = evidence.logs.quantity(claim.candidate, claim.workload, claim.metric, claim.statistic)
    if quantity is None:
        yield _row(claim, words, "unproven", "no log has it", published=claim.printed)
        return
    value, cause = quantity.value, None
    verdict = judge(claim.value, claim.half_unit, Quantity.rounded(value))
    if verdict == "confirmed" and plain(claim.value) != plain(value):
        verdict = "rounded"
    reason, published = f"its log has {plain(value)}", claim.printed
    if claim.times > 1:
        deployments = evidence.study.hardware.per_node // evidence.study.candidates[claim.candidate].accelerators
        reason += f"; ×{claim.times} is an extrapolation: {deployments} such deployments fit a node, one was run"
        published += f" ×{claim.times}"
        verdict = verdict if claim.times == deployments else "contradicted"
    elif verdict == "contradicted":
        cause = next(chain(_other_rows(claim, evidence), _other_pages(claim, evidence)), None)
    recomputed = plain(value) if verdict == "rounded" else in_digits(value, claim.printed)
    values = {"published_value": claim.value, "recomputed_value": value, "cause": cause}
    found = _row(claim, words, verdict, reason, published=published, recomputed=recomputed, **values)
    yield _by_honest_rates(found, evidence, [claim.candidate], lambda rates: _text(rates[claim.candidate], claim))


@claim_rule("change", ChangeClaim)
def _change(claim: ChangeClaim, evidence: AuditEvidence) -> Iterator[AuditFinding]:
    """A percentage follows from its two figures, on its basis."""
    basis = f" per {claim.basis}" if claim.basis != "deployment" else ""
    words = f"{_metric(claim)}{basis}, {claim.candidate} against {claim.against}, {claim.workload}"
    sides = _sides(claim, evidence, claim.basis)
    if sides is None:
        yield _row(claim, words, "unproven", "no log has one of its figures", published=claim.printed)
        return
    (side, said), (against, said_against) = sides
    names = [claim.candidate, claim.against]
    rates = honest_rates(evidence.logs, names, claim.workload, claim.metric)
    notes = [f"{plain(side.value)} against {plain(against.value)}", said, said_against]
    if rates is not None:
        change = in_digits(_change_of(rates, claim, evidence), claim.printed)
        notes.append(f"the logs' rates are not tokens / duration, by which it is {change}")
    reason = "; ".join(dict.fromkeys(note for note in notes if note))
    found = _number(claim, words, change_percent(side, against), reason)
    if found.verdict == "contradicted":
        found = replace(found, cause=next(_causes_of_change(claim, evidence), None))
    yield _by_honest_rates(found, evidence, names, lambda rates: _text(_change_of(rates, claim, evidence), claim))


@claim_rule("difference", DifferenceClaim)
def _difference(claim: DifferenceClaim, evidence: AuditEvidence) -> Iterator[AuditFinding]:
    """A difference follows from its two figures."""
    words = f"{_metric(claim)}, {claim.candidate} less {claim.against}, {claim.workload}"
    sides = _sides(claim, evidence, "deployment")
    if sides is None:
        yield _row(claim, words, "unproven", "no log has one of its figures", published=claim.printed)
        return
    (side, _), (against, _) = sides
    found = _number(claim, words, difference(side, against), f"{plain(side.value)} less {plain(against.value)}")
    names = [claim.candidate, claim.against]
    yield _by_honest_rates(found, evidence, names, lambda rates: _text(rates[names[0]] - rates[names[1]], claim))


@claim_rule("success_rate", SuccessClaim)
def _success_rate(claim: SuccessClaim, evidence: AuditEvidence) -> Iterator[AuditFinding]:
    """A success rate is successes / prompts."""
    words = f"Success rate of {claim.candidate} (%), {claim.workload}"
    completed = evidence.logs.quantity(claim.candidate, claim.workload, "requests_completed")
    prompts = evidence.study.workloads[claim.workload].prompts
    if completed is None:
        yield _row(claim, words, "unproven", "no log counts successes", published=claim.printed)
        return
    rate = 100 * completed.value / prompts
    yield _number(claim, words, Quantity.rounded(rate), f"{completed.value:g} of {prompts} requests succeeded")


@claim_rule("order", OrderClaim)
def _order(claim: OrderClaim, evidence: AuditEvidence) -> Iterator[AuditFinding]:
    """`A > B` is the order of the figures of the candidates' logs."""
    words, published = f"Best {metric_label(claim.metric)} first, {claim.workload}", " > ".join(claim.candidates)
    found = {name: evidence.logs.quantity(name, claim.workload, claim.metric) for name in claim.candidates}
    figures = {name: quantity.value for name, quantity in found.items() if quantity is not None}
    if len(figures) < len(claim.candidates):
        yield _row(claim, words, "unproven", "a log lacks the figure", published=published)
        return
    higher = bool(METRICS.get(claim.metric).higher_is_better)
    order = sorted(figures, key=figures.__getitem__, reverse=higher)
    in_order = [figures[name] for name in claim.candidates] == [figures[name] for name in order]
    row = _row(
        claim,
        words,
        "confirmed" if in_order else "contradicted",
        ", ".join(f"{name} {plain(value)}" for name, value in figures.items()),
        published=published,
        recomputed=published if in_order else " > ".join(order),
    )
    yield _by_honest_rates(
        row,
        evidence,
        claim.candidates,
        lambda rates: (" > ".join(sorted(rates, key=rates.__getitem__, reverse=higher)), None),
    )


@claim_rule("cause", OrderClaim)
def _cause(claim: OrderClaim, evidence: AuditEvidence) -> Iterator[AuditFinding]:
    """The option that is said to make the best one better is in its command, and in no other's."""
    if claim.because is None:
        return
    commands = {name: evidence.study.candidates[name].command_on(claim.workload) for name in claim.candidates}
    have = [name for name, command in commands.items() if claim.because in command.split()]
    yield _row(
        claim,
        f"{claim.because} makes {claim.candidates[0]} better",
        "confirmed" if have == claim.candidates[:1] else "contradicted",
        f"{claim.because} is in the command of {', '.join(have) or 'none of them'}",
        published=claim.because,
        recomputed=", ".join(have) or "in no command",
    )


@claim_rule("chosen", ChosenClaim)
def _chosen(claim: ChosenClaim, evidence: AuditEvidence) -> Iterator[AuditFinding]:
    """The published winner of a stage is that of the stage's decision, which has the objective's margin."""
    decided = evidence.chosen[claim.stage]
    yield _row(
        claim,
        f"Outcome of stage {claim.stage}",
        "confirmed" if decided == claim.candidate else "contradicted",
        f"decided again from the logs, the stage ends with {decided}{_by_which_rates(evidence)}",
        published=claim.candidate,
        recomputed=decided,
    )


@claim_rule("recommended", RecommendedClaim)
def _recommended(claim: RecommendedClaim, evidence: AuditEvidence) -> Iterator[AuditFinding]:
    """The recommended command is that of the search over the logs, apart from the order and the model's name."""
    study, on = evidence.study, evidence.study.objective.on
    same = same_command(claim.command, evidence.recommended, study.model_names)
    of_logs = (each.command_on(on) for each in study.candidates.values() if on in each.logs)
    ran = same or any(same_command(claim.command, each, study.model_names) for each in of_logs)
    yield _row(
        claim,
        "Recommended command",
        "confirmed" if same else "contradicted",
        f"the search over the logs ends with {'it' if same else 'another'}{_by_which_rates(evidence)}",
        published=claim.command,
        recomputed=evidence.recommended,
        cause=None if ran else "recommended command never ran",
    )


@claim_rule("accelerators", AcceleratorsClaim)
def _accelerators(claim: AcceleratorsClaim, evidence: AuditEvidence) -> Iterator[AuditFinding]:
    """The most accelerators of a deployment are those of a candidate."""
    name, most = max(evidence.study.candidates.items(), key=lambda item: item[1].accelerators)
    yield _row(
        claim,
        "Accelerators of a deployment, at most",
        "confirmed" if most.accelerators == claim.count else "contradicted",
        f"{name} used {most.accelerators}: {' '.join(read_command(most.command).words)} …",
        published=str(claim.count),
        recomputed=str(most.accelerators),
        published_value=claim.count,
        recomputed_value=most.accelerators,
    )


@claim_rule("like_with_like", ChangeClaim, DifferenceClaim, OrderClaim)
def _like_with_like(
    claim: ChangeClaim | DifferenceClaim | OrderClaim, evidence: AuditEvidence
) -> Iterator[AuditFinding]:
    """The runs that a gain is taken from served the same requests."""
    *names, last = claim.candidates if isinstance(claim, OrderClaim) else [claim.candidate, claim.against]
    for name in (each for each in names if each != last):
        yield from served_alike(evidence.logs, name, last, claim.workload)


def _row(claim: Claim, words: str, verdict: Verdict, reason: str, **found: Any) -> AuditFinding:
    """A finding on a claim, with what the claim states itself."""
    names = ("candidate", "against", "workload", "metric", "statistic", "basis", "where", "line")
    stated = {name: getattr(claim, name) for name in names if hasattr(claim, name)}
    return AuditFinding(words, verdict, reason, **stated, **found)


def _number(
    claim: ChangeClaim | DifferenceClaim | SuccessClaim, words: str, computed: Quantity, reason: str
) -> AuditFinding:
    return _row(
        claim,
        words,
        judge(claim.value, claim.half_unit, computed),
        reason,
        published=claim.printed,
        recomputed=in_digits(computed.value, claim.printed),
        published_value=claim.value,
        recomputed_value=computed.value,
    )


def _text(value: float, claim: Any) -> tuple[str, float]:
    """A value as the claim prints it, and the value."""
    return in_digits(value, claim.printed), value


def _metric(claim: FigureClaim | ChangeClaim | DifferenceClaim) -> str:
    label = metric_label(claim.metric)
    return label if METRICS.get(claim.metric).is_rate else f"{claim.statistic.capitalize()} {label}"


def _sides(
    claim: ChangeClaim | DifferenceClaim, evidence: AuditEvidence, basis: Basis
) -> tuple[tuple[Quantity, str], tuple[Quantity, str]] | None:
    """Both figures on a basis, each with a note; None if a log lacks one or the second is 0."""
    sides = []
    for name in (claim.candidate, claim.against):
        quantity = evidence.logs.quantity(name, claim.workload, claim.metric, claim.statistic)
        if quantity is None:
            return None
        used = evidence.study.candidates[name].accelerators
        sides.append(on_basis(quantity, basis, used, evidence.study.hardware.per_node))
    return (sides[0], sides[1]) if sides[1][0].low > 0 else None


def _by_which_rates(evidence: AuditEvidence) -> str:
    """A clause on the rates that decisions rest on, where logs print other ones."""
    study, (metric, _) = evidence.study, evidence.study.objective.metric_and_basis
    blocks = (each for name in study.candidates for each in evidence.logs.rounds(name, study.objective.on))
    unsound = any(metric in unsound_rates(block) for block in blocks)
    return "; decided by tokens / duration, which the logs print otherwise" if unsound else ""


def _by_honest_rates(
    finding: AuditFinding,
    evidence: AuditEvidence,
    candidates: Sequence[str],
    recompute: Callable[[dict[str, float]], tuple[str, float | None]],
) -> AuditFinding:
    """The finding, with the number by tokens / duration if it holds only by printed rates that are not that."""
    if finding.verdict not in ("confirmed", "rounded") or finding.workload is None or finding.metric is None:
        return finding
    rates = honest_rates(evidence.logs, candidates, finding.workload, finding.metric)
    if rates is None:
        return finding
    text, value = recompute(rates)
    reason = f"{finding.reason}; tokens / duration: {', '.join(f'{name} {rate:.2f}' for name, rate in rates.items())}"
    verdict: Verdict = "arithmetic right, figures unsound"
    return replace(finding, verdict=verdict, reason=reason, recomputed=text, recomputed_value=value)


def _change_of(rates: dict[str, float], claim: ChangeClaim, evidence: AuditEvidence) -> float:
    """The change in percent on the claim's basis."""
    per_node, candidates = evidence.study.hardware.per_node, evidence.study.candidates
    side, against = (
        rates[name] * per_basis(claim.basis, candidates[name].accelerators, per_node)[0]
        for name in (claim.candidate, claim.against)
    )
    return 100 * (side / against - 1)


def _other_rows(claim: FigureClaim, evidence: AuditEvidence) -> Iterator[str]:
    """Logs of the study that have a contradicted figure."""
    for workload in dict.fromkeys((claim.workload, *evidence.study.workloads)):
        for name in evidence.study.candidates:
            for statistic in dict.fromkeys((claim.statistic, "mean", "median", "p99")):
                if _has(evidence.logs, name, workload, claim, statistic):
                    of = f" ({statistic})" if statistic != claim.statistic else ""
                    yield f"it is in the log of {name}, {workload}{of}: copied from another row"


def _other_pages(claim: FigureClaim, evidence: AuditEvidence) -> Iterator[str]:
    """Logs of other studies that have a contradicted figure of enough digits."""
    enough = len(str(abs(Decimal(claim.printed))).replace(".", "").lstrip("0")) >= _LEAST_DIGITS
    for logs in evidence.others if enough else ():
        for workload in logs.study.workloads:
            try:
                names = [each for each in logs.study.candidates if _has(logs, each, workload, claim, claim.statistic)]
            except ConfigError:  # reported by that study's own audit
                continue
            for name in names:
                yield f"other page's figure: it is in the log of {name}, {workload}, of study {logs.study.study}"


def _has(logs: Logs, candidate: str, workload: str, claim: FigureClaim, statistic: str) -> bool:
    found = logs.quantity(candidate, workload, claim.metric, statistic)
    return found is not None and found.low - claim.half_unit <= claim.value <= found.high + claim.half_unit


def _causes_of_change(claim: ChangeClaim, evidence: AuditEvidence) -> Iterator[str]:
    """Likely causes of a contradicted percentage: a published figure without a log, or a swapped quotient."""
    sides = _sides(claim, evidence, claim.basis)
    if sides is None:
        return
    (side, _), (against, _) = sides
    for other in evidence.study.claims:
        if not isinstance(other, FigureClaim) or other.candidate not in (claim.candidate, claim.against):
            continue
        if any(getattr(other, name) != getattr(claim, name) for name in ("workload", "metric", "statistic")):
            continue
        used = evidence.study.candidates[other.candidate].accelerators
        quantity = Quantity.rounded(other.value, other.half_unit)
        stated, _ = on_basis(quantity, claim.basis, used, evidence.study.hardware.per_node)
        if _holds(claim, *((stated, against) if other.candidate == claim.candidate else (side, stated))):
            yield f"it follows from {other.printed}, published for {other.candidate} but not in its log"
    if side.low > 0 and _holds(claim, against, side):
        yield f"it is {claim.against} against {claim.candidate}: the quotient is swapped"
    if side.low > 0 and _holds(claim, against, side, sign=-1):
        yield f"it divides by the figure of {claim.candidate}: the quotient is swapped"
    if _holds(claim, side, against, sign=-1):
        yield "its sign is wrong"


def _holds(claim: ChangeClaim, side: Quantity, against: Quantity, sign: int = 1) -> bool:
    return judge(sign * claim.value, claim.half_unit, change_percent(side, against)) != "contradicted"
