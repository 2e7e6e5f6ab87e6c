"""Rules that recompute a published claim from the logs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from servelab.core.yaml_file import metric_label
from servelab.metrics.definitions import METRICS
from servelab.metrics.objective import Basis, per_basis
from servelab.recorded.audit import AuditEvidence, AuditFinding, claim_rule
from servelab.recorded.audit.causes import cause_of_change, cause_of_figure
from servelab.recorded.audit.rounding import Computed, change_percent, difference, in_digits, judge, on_basis, plain
from servelab.recorded.audit.run_rules import honest_rates, unsound_rates
from servelab.recorded.logs import Quantity
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

_LAST_DIGIT = "half a unit of the last published digit"


@claim_rule(
    "figure",
    claims=(FigureClaim,),
    compares="a candidate's figure with its log",
    tolerance="none; a figure with fewer digits than the log's counts as rounded",
)
def _figure(claim: Claim, evidence: AuditEvidence) -> Iterator[AuditFinding]:
    assert isinstance(claim, FigureClaim)
    quantity = evidence.logs.quantity(claim.candidate, claim.workload, claim.metric, claim.statistic)
    words = f"{_metric(claim)} of {claim.candidate}, {claim.workload}"
    if quantity is None:
        yield AuditFinding(words, "unproven", "no log has it", published=claim.printed, **_facts(claim))
        return
    exact = Computed(quantity.value, quantity.value, quantity.value)
    verdict = judge(claim.value, claim.half_unit, exact)
    cause = None
    if verdict == "confirmed" and plain(claim.value) != plain(quantity.value):
        verdict = "rounded"
    reason = f"its log has {plain(quantity.value)}"
    if claim.times > 1:
        deployments = evidence.study.hardware.per_node // evidence.study.candidates[claim.candidate].accelerators
        reason += f"; ×{claim.times} is an extrapolation: {deployments} such deployments fit a node, one was run"
        verdict = verdict if claim.times == deployments else "contradicted"
    elif verdict == "contradicted":
        cause = cause_of_figure(claim, evidence)
    found = AuditFinding(
        words,
        verdict,
        reason,
        published=claim.printed + (f" ×{claim.times}" if claim.times > 1 else ""),
        recomputed=plain(quantity.value / claim.scale)
        if verdict == "rounded"
        else in_digits(quantity.value / claim.scale, claim.printed),
        published_value=claim.value,
        recomputed_value=quantity.value,
        cause=cause,
        **_facts(claim),
    )
    yield _by_honest_rates(
        found, evidence, [claim.candidate], lambda rates: _figures_text(rates[claim.candidate], claim)
    )


@claim_rule(
    "change",
    claims=(ChangeClaim,),
    compares="a percentage with its two figures, on its basis",
    tolerance=f"{_LAST_DIGIT}; beyond it, what the rounding of the two figures explains counts as rounded",
)
def _change(claim: Claim, evidence: AuditEvidence) -> Iterator[AuditFinding]:
    assert isinstance(claim, ChangeClaim)
    basis = f" per {claim.basis}" if claim.basis != "deployment" else ""
    words = f"{_metric(claim)}{basis}, {claim.candidate} against {claim.against}, {claim.workload}"
    sides = _sides(claim, evidence, claim.basis)
    if sides is None:
        yield AuditFinding(words, "unproven", "no log has one of its figures", published=claim.printed, **_facts(claim))
        return
    (side, said), (against, said_against) = sides
    computed = change_percent(side, against)
    notes = [text for text in (said, said_against) if text] + _over_duration(claim, evidence)
    is_wrong = judge(claim.value, claim.half_unit, computed) == "contradicted"
    cause = cause_of_change(claim, evidence) if is_wrong else None
    reason = "; ".join([f"{plain(side.value)} against {plain(against.value)}", *dict.fromkeys(notes)])
    found = replace(_number(claim, words, computed, reason), cause=cause)
    yield _by_honest_rates(
        found,
        evidence,
        [claim.candidate, claim.against],
        lambda rates: _figures_text(_change_of(rates, claim, evidence), claim),
    )


@claim_rule(
    "difference",
    claims=(DifferenceClaim,),
    compares="a difference with its two figures",
    tolerance=f"{_LAST_DIGIT}; beyond it, what the rounding of the two figures explains counts as rounded",
)
def _difference(claim: Claim, evidence: AuditEvidence) -> Iterator[AuditFinding]:
    assert isinstance(claim, DifferenceClaim)
    words = f"{_metric(claim)}, {claim.candidate} less {claim.against}, {claim.workload}"
    sides = _sides(claim, evidence, "deployment")
    if sides is None:
        yield AuditFinding(words, "unproven", "no log has one of its figures", published=claim.printed, **_facts(claim))
        return
    (side, _), (against, _) = sides
    found = _number(claim, words, difference(side, against), f"{plain(side.value)} less {plain(against.value)}")
    yield _by_honest_rates(
        found,
        evidence,
        [claim.candidate, claim.against],
        lambda rates: _figures_text(rates[claim.candidate] - rates[claim.against], claim),
    )


@claim_rule(
    "success_rate",
    claims=(SuccessClaim,),
    compares="a success rate with successes and prompts",
    tolerance=_LAST_DIGIT,
)
def _success_rate(claim: Claim, evidence: AuditEvidence) -> Iterator[AuditFinding]:
    assert isinstance(claim, SuccessClaim)
    words = f"Success rate of {claim.candidate} (%), {claim.workload}"
    completed = evidence.logs.quantity(claim.candidate, claim.workload, "requests_completed")
    prompts = evidence.study.workloads[claim.workload].prompts
    if completed is None:
        yield AuditFinding(words, "unproven", "no log counts successes", published=claim.printed, **_facts(claim))
        return
    rate = 100 * completed.value / prompts
    reason = f"{completed.value:g} of {prompts} requests succeeded"
    yield _number(claim, words, Computed(rate, rate, rate), reason)


@claim_rule(
    "order",
    claims=(OrderClaim,),
    compares="`A > B` with the figures of the candidates' logs",
    tolerance="none",
)
def _order(claim: Claim, evidence: AuditEvidence) -> Iterator[AuditFinding]:
    assert isinstance(claim, OrderClaim)
    words = f"Best {metric_label(claim.metric)} first, {claim.workload}"
    facts = _facts(claim)
    published = " > ".join(claim.candidates)
    found = {name: evidence.logs.quantity(name, claim.workload, claim.metric) for name in claim.candidates}
    figures = {name: quantity.value for name, quantity in found.items() if quantity is not None}
    if len(figures) < len(claim.candidates):
        yield AuditFinding(words, "unproven", "a log lacks the figure", published=published, **facts)
        return
    order = sorted(figures, key=figures.__getitem__, reverse=bool(METRICS.get(claim.metric).higher_is_better))
    in_order = [figures[name] for name in claim.candidates] == [figures[name] for name in order]
    row = AuditFinding(
        words,
        "confirmed" if in_order else "contradicted",
        ", ".join(f"{name} {plain(value)}" for name, value in figures.items()),
        published=published,
        recomputed=published if in_order else " > ".join(order),
        **facts,
    )
    better = bool(METRICS.get(claim.metric).higher_is_better)
    yield _by_honest_rates(
        row,
        evidence,
        claim.candidates,
        lambda rates: (" > ".join(sorted(rates, key=rates.__getitem__, reverse=better)), None),
    )


@claim_rule(
    "cause",
    claims=(OrderClaim,),
    compares="the option that is said to make the best one better with the commands",
    tolerance="none: the best one's command must have it, the others' must not",
)
def _cause(claim: Claim, evidence: AuditEvidence) -> Iterator[AuditFinding]:
    assert isinstance(claim, OrderClaim)
    if claim.because is None:
        return
    commands = {name: evidence.study.candidates[name].command_on(claim.workload) for name in claim.candidates}
    have = [name for name, command in commands.items() if claim.because in command.split()]
    yield AuditFinding(
        f"{claim.because} makes {claim.candidates[0]} better",
        "confirmed" if have == claim.candidates[:1] else "contradicted",
        f"{claim.because} is in the command of {', '.join(have) or 'none of them'}",
        published=claim.because,
        recomputed=", ".join(have) or "in no command",
        **_facts(claim),
    )


@claim_rule(
    "chosen",
    claims=(ChosenClaim,),
    compares="the published winner of a stage with the stage's decision",
    tolerance="none; the decision has the objective's margin",
)
def _chosen(claim: Claim, evidence: AuditEvidence) -> Iterator[AuditFinding]:
    assert isinstance(claim, ChosenClaim)
    decided = evidence.chosen[claim.stage]
    yield AuditFinding(
        f"Outcome of stage {claim.stage}",
        "confirmed" if decided == claim.candidate else "contradicted",
        f"decided again from the logs, the stage ends with {decided}{_by_which_rates(evidence)}",
        published=claim.candidate,
        recomputed=decided,
        **_facts(claim),
    )


@claim_rule(
    "recommended",
    claims=(RecommendedClaim,),
    compares="the recommended command with the one that the search over the logs ends with",
    tolerance="order of options, and names of the model",
)
def _recommended(claim: Claim, evidence: AuditEvidence) -> Iterator[AuditFinding]:
    assert isinstance(claim, RecommendedClaim)
    same = same_command(claim.command, evidence.recommended, evidence.study.model_names)
    yield AuditFinding(
        "Recommended command",
        "confirmed" if same else "contradicted",
        f"the search over the logs ends with {'it' if same else 'another'}{_by_which_rates(evidence)}",
        published=claim.command,
        recomputed=evidence.recommended,
        cause=None if same or _ran(claim.command, evidence) else "recommended command never ran",
        **_facts(claim),
    )


def _ran(command: str, evidence: AuditEvidence) -> bool:
    """Whether a log of the workload that decides is of a command."""
    study, on = evidence.study, evidence.study.objective.on
    of_logs = (each.command_on(on) for each in study.candidates.values() if on in each.logs)
    return any(same_command(command, each, study.model_names) for each in of_logs)


@claim_rule(
    "accelerators",
    claims=(AcceleratorsClaim,),
    compares="the most accelerators of a deployment with the candidates'",
    tolerance="none",
)
def _accelerators(claim: Claim, evidence: AuditEvidence) -> Iterator[AuditFinding]:
    assert isinstance(claim, AcceleratorsClaim)
    name, most = max(evidence.study.candidates.items(), key=lambda item: item[1].accelerators)
    yield AuditFinding(
        "Accelerators of a deployment, at most",
        "confirmed" if most.accelerators == claim.count else "contradicted",
        f"{name} used {most.accelerators}: {' '.join(read_command(most.command).words)} …",
        published=str(claim.count),
        recomputed=str(most.accelerators),
        published_value=claim.count,
        recomputed_value=most.accelerators,
        **_facts(claim),
    )


def _by_which_rates(evidence: AuditEvidence) -> str:
    """A clause on the rates that decisions rest on, where logs print other ones."""
    study = evidence.study
    metric, _ = study.objective.metric_and_basis
    blocks = (each for name in study.candidates for each in evidence.logs.rounds(name, study.objective.on))
    unsound = any(metric in unsound_rates(block) for block in blocks)
    return "; decided by tokens / duration, which the logs print otherwise" if unsound else ""


def _number(
    claim: ChangeClaim | DifferenceClaim | SuccessClaim, words: str, computed: Computed, reason: str
) -> AuditFinding:
    return AuditFinding(
        words,
        judge(claim.value, claim.half_unit, computed),
        reason,
        published=claim.printed + _times(claim),
        recomputed=in_digits(_as_printed(claim, computed.value), claim.printed) + _times(claim),
        published_value=claim.value,
        recomputed_value=computed.value,
        **_facts(claim),
    )


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
    each = ", ".join(f"{name} {rate:.2f}" for name, rate in rates.items())
    reason = f"{finding.reason}; tokens / duration: {each}"
    return replace(
        finding,
        verdict="arithmetic right, figures unsound",
        reason=reason,
        recomputed=text,
        recomputed_value=value,
    )


def _figures_text(value: float, claim: FigureClaim | ChangeClaim | DifferenceClaim) -> tuple[str, float]:
    printed = claim.as_printed(value) if isinstance(claim, ChangeClaim) else value
    return in_digits(printed, claim.printed) + _times(claim), value


def _times(claim: Claim) -> str:
    """What follows the number of a ratio."""
    return "x" if isinstance(claim, ChangeClaim) and claim.unit else ""


def _as_printed(claim: ChangeClaim | DifferenceClaim | SuccessClaim, value: float) -> float:
    """A value in the unit that the claim prints."""
    return claim.as_printed(value) if isinstance(claim, ChangeClaim) else value / getattr(claim, "scale", 1.0)


def _change_of(rates: dict[str, float], claim: ChangeClaim, evidence: AuditEvidence) -> float:
    """The change in percent on the claim's basis."""
    factors = [
        per_basis(claim.basis, evidence.study.candidates[name].accelerators, evidence.study.hardware.per_node)[0]
        for name in (claim.candidate, claim.against)
    ]
    return 100 * (rates[claim.candidate] * factors[0] / (rates[claim.against] * factors[1]) - 1)


def _over_duration(claim: ChangeClaim, evidence: AuditEvidence) -> list[str]:
    """The change by tokens / duration, if a log's token rate is over a different time."""
    rates = honest_rates(evidence.logs, [claim.candidate, claim.against], claim.workload, claim.metric)
    if rates is None:
        return []
    change = in_digits(claim.as_printed(_change_of(rates, claim, evidence)), claim.printed)
    return [f"the logs' rates are not tokens / duration, by which it is {change}"]


def _metric(claim: FigureClaim | ChangeClaim | DifferenceClaim) -> str:
    label = metric_label(claim.metric)
    return label if METRICS.get(claim.metric).is_rate else f"{claim.statistic.capitalize()} {label}"


def _facts(claim: Claim) -> dict[str, Any]:
    """Fields of a finding that a claim states itself."""
    names = ("candidate", "against", "workload", "metric", "statistic", "basis", "where", "line")
    return {name: getattr(claim, name) for name in names if hasattr(claim, name)}
