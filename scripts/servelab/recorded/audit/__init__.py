"""Audit of a recorded study: recomputes what was published, and checks the logs for contradictions.

A rule is one function that registers itself. A *claim rule* checks a claim of `study.yaml`, a *run rule* the logs of
one candidate on one workload. Rules are general: none knows a study, a tool or an engine. Their findings are the rows
of `claims.parquet`; findings of run rules are also the checks of the run, and decide its validity.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

import pyarrow as pa

from servelab.core.registry import Registry
from servelab.core.yaml_file import metric_label
from servelab.metrics.objective import Basis, per_basis
from servelab.metrics.tables import schemas
from servelab.recorded.logs import Logs, Quantity
from servelab.recorded.readers import VALUE, Block
from servelab.recorded.readers.figures import ValueRange, total
from servelab.results.checks import Level
from servelab.study.recorded.published_claims import decimals
from servelab.study.recorded.study import RecordedCandidate, RecordedStudy

Verdict = Literal["contradicted", "unproven", "arithmetic right, figures unsound", "rounded", "confirmed"]
"""`confirmed`: equal to the published digit; `rounded`: different, but rounding explains it; `unproven`: the logs lack
the figures; `arithmetic right, figures unsound`: it would be one of the first two, but a rate that it rests on is not
tokens / duration; `contradicted` otherwise."""
VERDICTS = ("contradicted", "arithmetic right, figures unsound", "unproven", "rounded", "confirmed")
"""Verdicts, the worst first."""
_RANKS = {"chosen", "recommended", "order", "broken_log", "served_model", "never_ran", "printed_twice"}
_RANKS |= {"like_the_baseline"}
"""Rules on which candidate is better, or may be."""
_PERCENTAGES = ("change", "success_rate")
"""Rules on numbers that are percentages."""

Row = dict[str, Any]


@dataclass(frozen=True)
class AuditFinding:
    """What a rule found; a field that does not apply is None."""

    claim: str
    """The claim in words."""
    verdict: Verdict
    reason: str
    """The arithmetic or the fact behind the verdict."""
    published: str | None = None
    """As printed; None if nothing was published."""
    recomputed: str | None = None
    """What the logs give, with as many digits as were published."""
    published_value: float | None = None
    recomputed_value: float | None = None
    candidate: str | None = None
    against: str | None = None
    workload: str | None = None
    metric: str | None = None
    statistic: str | None = None
    basis: str | None = None
    cause: str | None = None
    """The likely cause of what is wrong; None if nothing is, or none is known."""
    where: str = ""
    """Section of the publication, or file of the log."""
    line: int | None = None

    @property
    def summary(self) -> str:
        """In short: the contradicted figure and its recomputed value, or the reason."""
        if self.verdict != "contradicted" or self.metric is None or self.published is None:
            return self.reason
        return f"{metric_label(self.metric)} is {self.published}, by the rest of the log {self.recomputed}"


@dataclass(frozen=True)
class AuditEvidence:
    """What claims are compared with."""

    study: RecordedStudy
    logs: Logs
    chosen: Mapping[str, str]
    """Stage → its winner when decided from the logs, as `<stage>/<candidate>`."""
    recommended: str
    """The serving command that the search over the logs recommends."""
    others: tuple[Logs, ...] = ()
    """Other recorded studies, whose figures a publication may have by mistake."""


@dataclass(frozen=True)
class Run:
    """A candidate on a workload with logs."""

    study: RecordedStudy
    logs: Logs
    reference: str
    workload: str

    @property
    def candidate(self) -> RecordedCandidate:
        """The candidate as the study describes it."""
        return self.study.candidates[self.reference]

    @property
    def command(self) -> str:
        """The serving command of its logs; without logs, the one that was published."""
        return self.candidate.command_on(self.workload)

    @property
    def blocks(self) -> list[Block]:
        """Its results, one per round; broken logs have none."""
        return self.logs.rounds(self.reference, self.workload)

    def finding(self, claim: str, verdict: Verdict, reason: str, **facts: Any) -> AuditFinding:
        """A finding on it."""
        return AuditFinding(claim, verdict, reason, candidate=self.reference, workload=self.workload, **facts)


ClaimLook = Callable[[Any, AuditEvidence], Iterator[AuditFinding]]
RunLook = Callable[[Run], Iterator[AuditFinding]]


class ClaimRule(NamedTuple):
    """How claims of some kinds are recomputed."""

    name: str
    claims: tuple[type, ...]
    look: ClaimLook


class RunRule(NamedTuple):
    """What the logs of a run must agree on."""

    name: str
    compares: str
    action: str
    """What to do about a run that it contradicts."""
    fails_as: Level
    """Validity of such a run: `suspect` or `invalid`."""
    of_command: bool
    """Whether it needs no logs, so that it also checks candidates that crashed or were never run."""
    look: RunLook


CLAIM_RULES: Registry[ClaimRule] = Registry("claim rule")
RUN_RULES: Registry[RunRule] = Registry("run rule")


def claim_rule(name: str, *claims: type) -> Callable[[ClaimLook], ClaimLook]:
    """Registers the decorated function as the rule on these types of claims."""
    return lambda look: CLAIM_RULES.register(name, ClaimRule(name, claims, look)).look


def run_rule(
    name: str, compares: str, action: str, *, fails_as: Level = "suspect", of_command: bool = False
) -> Callable[[RunLook], RunLook]:
    """Registers the decorated function as a run rule."""
    return lambda look: RUN_RULES.register(name, RunRule(name, compares, action, fails_as, of_command, look)).look


def audit(evidence: AuditEvidence) -> pa.Table:
    """Schema CLAIMS: the findings on claims, then those on logs; a finding is listed once.

    The worst verdict is first; in it what changes a rank, then by size; what is alike is in the study file's order.
    """
    rows: dict[tuple[str, AuditFinding], Row] = {}
    for source, rule, finding in _findings(evidence):
        row = {"study": evidence.study.study, "source": source, "rule": rule, **asdict(finding)}
        rows.setdefault((rule, finding), row | {"points": _points(row)})
    return pa.Table.from_pylist(sorted(rows.values(), key=_order), schema=schemas.CLAIMS)


def _order(row: Row) -> tuple[bool, int, bool, float]:
    return row["source"] == "logs", VERDICTS.index(row["verdict"]), not _changes_rank(row), -(row["points"] or 0.0)


def _changes_rank(row: Row) -> bool:
    """Whether a row is on who is better: also a gain that is a loss."""
    if row["rule"] in ("change", "difference") and None not in (row["published_value"], row["recomputed_value"]):
        return bool(row["published_value"] * row["recomputed_value"] < 0)
    return row["rule"] in _RANKS


def _points(row: Row) -> float | None:
    """How far off a number is, in points of percent: of a percentage the difference, of others the relative error."""
    published, recomputed = row["published_value"], row["recomputed_value"]
    if published is None or recomputed is None:
        return None
    if row["rule"] in _PERCENTAGES:
        return abs(float(published) - float(recomputed))
    return abs(100 * (float(published) / float(recomputed) - 1)) if recomputed else None


def _findings(evidence: AuditEvidence) -> Iterator[tuple[str, str, AuditFinding]]:
    study = evidence.study
    for claim in study.claims:
        for claim_rule in (each for each in CLAIM_RULES if isinstance(claim, each.claims)):
            yield from (("publication", claim_rule.name, found) for found in claim_rule.look(claim, evidence))
    for reference, candidate in study.candidates.items():
        for workload in dict.fromkeys([*candidate.logs, *candidate.commands, study.objective.on]):
            run = Run(study, evidence.logs, reference, workload)
            for rule in (each for each in RUN_RULES if workload in candidate.logs or each.of_command):
                yield from (("logs", rule.name, found) for found in rule.look(run))


_SLACK = 1e-9
"""Relative; binary fractions are not exactly decimal ones."""
AMOUNTS = {"output_tokens_per_s": ("output_tokens",), "total_tokens_per_s": ("input_tokens", "output_tokens")}
"""Rate → what it counts."""


def judge(published: float, half_unit: float, computed: Quantity) -> Verdict:
    """`confirmed` if the computed number rounds to the published one, whose last digit is worth twice `half_unit`;
    `rounded` if a number within its range does; `contradicted` otherwise."""
    room = half_unit + _SLACK * max(1.0, abs(published))
    if abs(published - computed.value) <= room:
        return "confirmed"
    return "rounded" if computed.low - room <= published <= computed.high + room else "contradicted"


def change_percent(side: Quantity, against: Quantity) -> Quantity:
    """100 × (side / against − 1); `against` must be above 0 also after rounding."""
    pairs = ((side.value, against.value), (side.low, against.high), (side.high, against.low))
    return Quantity(*(100 * (one / other - 1) for one, other in pairs))


def difference(side: Quantity, against: Quantity) -> Quantity:
    """side − against."""
    return Quantity(side.value - against.value, side.low - against.high, side.high - against.low)


def on_basis(quantity: Quantity, basis: Basis, accelerators: int, per_node: int) -> tuple[Quantity, str]:
    """The figure on a basis, and a note if that is an extrapolation."""
    factor, extrapolated = per_basis(basis, accelerators, per_node)
    note = f"×{factor:g} for a node of {per_node}, extrapolated: {accelerators} were run" if extrapolated else ""
    return quantity.times(factor), note


def in_digits(value: float, printed: str) -> str:
    """A number with the digits and the sign of a printed one: 27.4166 for `+27.7` is `+27.4`."""
    digits = decimals(printed)
    return f"{round(value, digits) + 0.0:{'+' if printed[0] == '+' else ''}.{digits}f}"  # + 0.0 makes −0 a 0


def plain(value: float) -> str:
    """A figure with all its digits."""
    return f"{value:.10g}"


class TokenRate(NamedTuple):
    """A token rate that a log prints, and tokens / duration of the same log."""

    printed: float
    computed: float
    agrees: bool
    """Whether rounding explains the difference."""


def token_rate(block: Block, metric: str) -> TokenRate | None:
    """None for other metrics, or if the log lacks a part."""
    figures = {each.metric: each for each in block.figures if each.statistic == VALUE and each.value is not None}
    parts = AMOUNTS.get(metric, ())
    if not parts or not block.value("duration_s") or not figures.keys() >= {metric, *parts}:
        return None
    ranges = {name: ValueRange.around(each.value or 0.0, each.half_unit) for name, each in figures.items()}
    value = {name: each.value or 0.0 for name, each in figures.items()}
    agrees = ranges[metric].meets(total(ranges, parts) / ranges["duration_s"])
    return TokenRate(value[metric], sum(value[part] for part in parts) / value["duration_s"], agrees)


def unsound_rates(block: Block) -> dict[str, float]:
    """Token rates that the log prints otherwise than its tokens and duration give, and what these give."""
    rates = {metric: token_rate(block, metric) for metric in AMOUNTS}
    return {metric: rate.computed for metric, rate in rates.items() if rate is not None and not rate.agrees}


def honest_rates(logs: Logs, candidates: Iterable[str], workload: str, metric: str) -> dict[str, float] | None:
    """Candidate → tokens / duration, its mean over rounds; None unless a rate that some log prints differs from it."""
    rates, agree = {}, True
    for name in candidates:
        found = [token_rate(block, metric) for block in logs.rounds(name, workload)]
        computed = [rate.computed for rate in found if rate is not None]
        if not computed or len(computed) < len(found):
            return None
        agree &= all(rate is not None and rate.agrees for rate in found)
        rates[name] = sum(computed) / len(computed)
    return None if agree else rates


CLAIM_RULES.load(__name__)
