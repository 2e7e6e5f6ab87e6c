"""Rules that recompute a published claim from the logs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import product
from typing import Any

from servelab.core.errors import ConfigError
from servelab.core.figure_text import metric_label
from servelab.metrics.definitions import METRICS
from servelab.metrics.objective import per_basis
from servelab.recorded.audit.findings import AuditEvidence, Row, Verdict, finding, plain, served_alike
from servelab.recorded.logs import unsound_rates
from servelab.recorded.readers.figures import ValueRange
from servelab.study.recorded import published_claims as claims
from servelab.study.recorded.commands import read_command, same_command

_LEAST_DIGITS = 4
"""Another page has a number with fewer digits by chance."""
_SLACK = 1e-9
"""Relative; binary fractions are not exactly decimal ones."""
_UNSOUND: Verdict = "arithmetic right, figures unsound"
_Pair = claims.ChangeClaim | claims.DifferenceClaim
_Number = claims.FigureClaim | claims.ChangeClaim | claims.DifferenceClaim | claims.SuccessClaim


def _figure(claim: claims.FigureClaim, evidence: AuditEvidence) -> Iterator[Row]:
    """A candidate's figure is in its log; with fewer digits than there it is rounded."""
    words = f"{_metric(claim)} of {claim.candidate}, {claim.workload}"
    quantity = _quantity(claim, evidence, claim.candidate)
    if quantity is None:
        yield _row(claim, words, "unproven", "no log has it", published=claim.printed)
        return
    value = quantity.value
    found = _stated(claim, words, ValueRange.around(value), f"its log has {plain(value)}")
    if found["verdict"] == "confirmed" and plain(claim.value) != plain(value):
        found |= {"verdict": "rounded", "recomputed": plain(value)}
    if claim.times > 1:
        deployments = evidence.study.hardware.per_node // evidence.study.candidates[claim.candidate].accelerators
        of = f"{deployments} such deployments fit a node, one was run"
        found["reason"] += f"; ×{claim.times} is an extrapolation: {of}"
        found["published"] += f" ×{claim.times}"
        found["verdict"] = found["verdict"] if claim.times == deployments else "contradicted"
    elif found["verdict"] == "contradicted":
        found["cause"] = next(_elsewhere(claim, evidence), None)
    yield _by_honest_rates(found, evidence, [claim.candidate], lambda rates: _text(claim, rates[claim.candidate]))


def _pair(claim: _Pair, evidence: AuditEvidence) -> Iterator[Row]:
    """A percentage follows from its two figures, on its basis; a difference too."""
    joined, basis = "less", ""
    if isinstance(claim, claims.ChangeClaim):
        joined, basis = "against", f" per {claim.basis}" if claim.basis != "deployment" else ""
    words = f"{_metric(claim)}{basis}, {claim.candidate} {joined} {claim.against}, {claim.workload}"
    names = [claim.candidate, claim.against]
    figures = {name: each for name in names if (each := _quantity(claim, evidence, name)) is not None}
    computed = _computed(claim, evidence, figures)
    if computed is None:
        yield _row(claim, words, "unproven", "no log has one of its figures", published=claim.printed)
        return
    sides = [_on_basis(claim, evidence, name, figures[name]) for name in names]
    notes = [f" {joined} ".join(plain(side.value) for side, _ in sides), *(note for _, note in sides)]
    rates = evidence.logs.honest_rates(names, claim.workload, claim.metric)
    if rates is not None and isinstance(claim, claims.ChangeClaim) and (honest := _computed(claim, evidence, rates)):
        change = _in_digits(honest.value, claim.printed)
        notes.append(f"the logs' rates are not tokens / duration, by which it is {change}")
    found = _stated(claim, words, computed, "; ".join(dict.fromkeys(note for note in notes if note)))
    if found["verdict"] == "contradicted" and isinstance(claim, claims.ChangeClaim):
        found["cause"] = next(_causes_of_change(claim, evidence, figures), None)
    yield _by_honest_rates(found, evidence, names, lambda rates: _text(claim, _computed(claim, evidence, rates)))


def _success_rate(claim: claims.SuccessClaim, evidence: AuditEvidence) -> Iterator[Row]:
    """A success rate is successes / prompts."""
    words = f"Success rate of {claim.candidate} (%), {claim.workload}"
    completed = evidence.logs.quantity(claim.candidate, claim.workload, "requests_completed")
    prompts = evidence.study.workloads[claim.workload].prompts
    if completed is None:
        yield _row(claim, words, "unproven", "no log counts successes", published=claim.printed)
        return
    rate = ValueRange.around(100 * completed.value / prompts)
    yield _stated(claim, words, rate, f"{completed.value:g} of {prompts} requests succeeded")


def _order(claim: claims.OrderClaim, evidence: AuditEvidence) -> Iterator[Row]:
    """`A > B` is the order of the figures of the candidates' logs."""
    words, published = f"Best {metric_label(claim.metric)} first, {claim.workload}", " > ".join(claim.candidates)
    figures = {name: evidence.logs.quantity(name, claim.workload, claim.metric) for name in claim.candidates}
    values = {name: quantity for name, quantity in figures.items() if quantity is not None}
    if len(values) < len(claim.candidates):
        yield _row(claim, words, "unproven", "a log lacks the figure", published=published)
        return

    higher = bool(METRICS.get(claim.metric).higher_is_better)

    def best_first(of: Mapping[str, ValueRange]) -> str:
        return " > ".join(sorted(of, key=lambda name: of[name].value, reverse=higher))

    best = best_first(values)
    is_so = [values[name].value for name in claim.candidates] == [values[name].value for name in best.split(" > ")]
    reason = ", ".join(f"{name} {plain(each.value)}" for name, each in values.items())
    found = _compared(claim, words, published, published if is_so else best, reason)
    recompute = lambda rates: {"recomputed": best_first(rates), "recomputed_value": None}  # noqa: E731
    yield _by_honest_rates(found, evidence, claim.candidates, recompute)


def _cause(claim: claims.OrderClaim, evidence: AuditEvidence) -> Iterator[Row]:
    """The option that is said to make the best one better is in its command, and in no other's."""
    if claim.because is None:
        return
    commands = {name: evidence.study.candidates[name].command_on(claim.workload) for name in claim.candidates}
    have = [name for name, command in commands.items() if claim.because in command.split()]
    words, names = f"{claim.because} makes {claim.candidates[0]} better", ", ".join(have)
    reason = f"{claim.because} is in the command of {names or 'none of them'}"
    found = _compared(claim, words, claim.because, names or "in no command", reason)
    yield found | {"verdict": "confirmed" if have == claim.candidates[:1] else "contradicted"}


def _chosen(claim: claims.ChosenClaim, evidence: AuditEvidence) -> Iterator[Row]:
    """The published winner of a stage is that of the stage's decision, which has the objective's margin."""
    decided = evidence.chosen[claim.stage]
    reason = f"decided again from the logs, the stage ends with {decided}{_by_which_rates(evidence)}"
    yield _compared(claim, f"Outcome of stage {claim.stage}", claim.candidate, decided, reason)


def _recommended(claim: claims.RecommendedClaim, evidence: AuditEvidence) -> Iterator[Row]:
    """The recommended command is that of the search over the logs, apart from the order and the model's name."""
    study, on = evidence.study, evidence.study.objective.on
    of_logs = (each.command_on(on) for each in study.candidates.values() if on in each.logs)
    same, *ran = (same_command(claim.command, each, study.model_names) for each in (evidence.recommended, *of_logs))
    reason = f"the search over the logs ends with {'it' if same else 'another'}{_by_which_rates(evidence)}"
    found = _compared(claim, "Recommended command", claim.command, evidence.recommended, reason)
    cause = None if same or any(ran) else "recommended command never ran"
    yield found | {"verdict": "confirmed" if same else "contradicted", "cause": cause}


def _accelerators(claim: claims.AcceleratorsClaim, evidence: AuditEvidence) -> Iterator[Row]:
    """The most accelerators of a deployment are those of a candidate."""
    name, most = max(evidence.study.candidates.items(), key=lambda item: item[1].accelerators)
    reason = f"{name} used {most.accelerators}: {' '.join(read_command(most.command).words)} …"
    words = "Accelerators of a deployment, at most"
    found = _compared(claim, words, str(claim.count), str(most.accelerators), reason)
    yield found | {"published_value": claim.count, "recomputed_value": most.accelerators}


def _like_with_like(claim: _Pair | claims.OrderClaim, evidence: AuditEvidence) -> Iterator[Row]:
    """The runs that a gain is taken from served the same requests."""
    *names, last = claim.candidates if isinstance(claim, claims.OrderClaim) else [claim.candidate, claim.against]
    for name in (each for each in names if each != last):
        yield from served_alike(evidence.logs, name, last, claim.workload)


def _row(claim: claims.Claim, words: str, verdict: Verdict | bool, reason: str, **found: Any) -> Row:
    """A finding on a claim, with what the claim states itself."""
    names = ("candidate", "against", "workload", "metric", "statistic", "basis", "where", "line")
    stated = {name: getattr(claim, name) for name in names if hasattr(claim, name)}
    return finding(words, verdict, reason) | stated | found


def _compared(claim: claims.Claim, words: str, published: str, recomputed: str, reason: str) -> Row:
    """A finding on a claim that is true if both are equal."""
    return _row(claim, words, published == recomputed, reason, published=published, recomputed=recomputed)


def _stated(claim: _Number, words: str, computed: ValueRange, reason: str) -> Row:
    values = {"published": claim.printed, "published_value": claim.value, **_text(claim, computed)}
    return _row(claim, words, _judge(claim, claim.value, computed), reason, **values)


def _judge(claim: _Number, published: float, computed: ValueRange) -> Verdict:
    """`confirmed` if the computed number rounds to the published one; `rounded` if a number within its range does;
    `contradicted` otherwise."""
    room = claim.half_unit + _SLACK * max(1.0, abs(published))
    if abs(published - computed.value) <= room:
        return "confirmed"
    return "rounded" if computed.low - room <= published <= computed.high + room else "contradicted"


def _text(claim: _Number, computed: ValueRange | None) -> Row:
    """A number as the claim prints it, and the number."""
    value = computed.value if computed else 0.0
    return {"recomputed": _in_digits(value, claim.printed), "recomputed_value": value}


def _in_digits(value: float, printed: str) -> str:
    """A number with the digits and the sign of a printed one: 27.4166 for `+27.7` is `+27.4`."""
    digits = claims.decimals(printed)
    return f"{round(value, digits) + 0.0:{'+' if printed[0] == '+' else ''}.{digits}f}"  # + 0.0 makes −0 a 0


def _metric(claim: claims.FigureClaim | _Pair) -> str:
    label = metric_label(claim.metric)
    return label if METRICS.get(claim.metric).is_rate else f"{claim.statistic.capitalize()} {label}"


def _quantity(claim: claims.FigureClaim | _Pair, evidence: AuditEvidence, candidate: str) -> ValueRange | None:
    return evidence.logs.quantity(candidate, claim.workload, claim.metric, claim.statistic)


def _on_basis(claim: _Pair, evidence: AuditEvidence, candidate: str, figure: ValueRange) -> tuple[ValueRange, str]:
    """A candidate's figure on the claim's basis, and a note if that is an extrapolation."""
    if isinstance(claim, claims.DifferenceClaim):
        return figure, ""
    per_node, used = evidence.study.hardware.per_node, evidence.study.candidates[candidate].accelerators
    factor, extrapolated = per_basis(claim.basis, used, per_node)
    note = f"×{factor:g} for a node of {per_node}, extrapolated: {used} were run" if extrapolated else ""
    return figure * ValueRange(factor, factor, factor), note


def _computed(claim: _Pair, evidence: AuditEvidence, figures: Mapping[str, ValueRange]) -> ValueRange | None:
    """The claimed number, from the figures of both candidates; None if one is missing or the second is 0."""
    names = (claim.candidate, claim.against)
    if not figures.keys() >= set(names):
        return None
    side, against = (_on_basis(claim, evidence, name, figures[name])[0] for name in names)
    if against.low <= 0:
        return None
    pairs = ((side.value, against.value), (side.low, against.high), (side.high, against.low))
    is_change = isinstance(claim, claims.ChangeClaim)
    return ValueRange(*(100 * (one / other - 1) if is_change else one - other for one, other in pairs))


def _by_which_rates(evidence: AuditEvidence) -> str:
    """A clause on the rates that decisions rest on, where logs print other ones."""
    study, (metric, _) = evidence.study, evidence.study.objective.metric_and_basis
    blocks = (each for name in study.candidates for each in evidence.logs.rounds(name, study.objective.on))
    unsound = any(metric in unsound_rates(block) for block in blocks)
    return "; decided by tokens / duration, which the logs print otherwise" if unsound else ""


def _by_honest_rates(
    found: Row, evidence: AuditEvidence, candidates: Sequence[str], recompute: Callable[[Mapping[str, ValueRange]], Row]
) -> Row:
    """The finding, with the number by tokens / duration if it holds only by printed rates that are not that."""
    if found["verdict"] not in ("confirmed", "rounded"):
        return found
    rates = evidence.logs.honest_rates(candidates, found["workload"], found["metric"])
    if rates is None:
        return found
    of = ", ".join(f"{name} {rate.value:.2f}" for name, rate in rates.items())
    return found | {"verdict": _UNSOUND, "reason": f"{found['reason']}; tokens / duration: {of}"} | recompute(rates)


def _elsewhere(claim: claims.FigureClaim, evidence: AuditEvidence) -> Iterator[str]:
    """Logs that have a contradicted figure: of the study, and if it has enough digits, of other studies."""
    enough = len(str(abs(Decimal(claim.printed))).replace(".", "").lstrip("0")) >= _LEAST_DIGITS
    for logs in (evidence.logs, *(evidence.others if enough else ())):
        is_own, study = logs is evidence.logs, logs.study
        workloads = dict.fromkeys([claim.workload, *study.workloads] if is_own else study.workloads)
        statistics = dict.fromkeys((claim.statistic, "mean", "median", "p99") if is_own else (claim.statistic,))
        for workload, name, statistic in product(workloads, study.candidates, statistics):
            try:
                found = logs.quantity(name, workload, claim.metric, statistic)
            except ConfigError:  # reported by that study's own audit
                continue
            if found and found.low - claim.half_unit <= claim.value <= found.high + claim.half_unit:
                where = f"it is in the log of {name}, {workload}"
                of = f" ({statistic})" if statistic != claim.statistic else ""
                yield (
                    f"{where}{of}: copied from another row"
                    if is_own
                    else (f"other page's figure: {where}, of study {study.study}")
                )


def _causes_of_change(
    claim: claims.ChangeClaim, evidence: AuditEvidence, figures: Mapping[str, ValueRange]
) -> Iterator[str]:
    """Likely causes of a contradicted percentage: a published figure without a log, or a swapped quotient."""
    swapped = claim.model_copy(update={"candidate": claim.against, "against": claim.candidate})
    tries: list[tuple[claims.ChangeClaim, Mapping[str, ValueRange], int, str]] = []
    for other in (each for each in evidence.study.claims if isinstance(each, claims.FigureClaim)):
        alike = all(getattr(other, name) == getattr(claim, name) for name in ("workload", "metric", "statistic"))
        if alike and other.candidate in figures:
            stated = {**figures, other.candidate: ValueRange.around(other.value, other.half_unit)}
            words = f"it follows from {other.printed}, published for {other.candidate} but not in its log"
            tries.append((claim, stated, 1, words))
    tries += [
        (swapped, figures, 1, f"it is {claim.against} against {claim.candidate}: the quotient is swapped"),
        (swapped, figures, -1, f"it divides by the figure of {claim.candidate}: the quotient is swapped"),
        (claim, figures, -1, "its sign is wrong"),
    ]
    for case, of, sign, words in tries:
        computed = _computed(case, evidence, of)
        if computed is not None and _judge(case, sign * case.value, computed) != "contradicted":
            yield words


CLAIM_RULES: dict[str, tuple[Callable[[Any, AuditEvidence], Iterator[Row]], ...]] = {
    "figure": (_figure,),
    "change": (_pair, _like_with_like),
    "difference": (_pair, _like_with_like),
    "success_rate": (_success_rate,),
    "order": (_cause, _like_with_like, _order),
    "chosen": (_chosen,),
    "recommended": (_recommended,),
    "accelerators": (_accelerators,),
}
"""Kind of a claim → what recomputes it."""
