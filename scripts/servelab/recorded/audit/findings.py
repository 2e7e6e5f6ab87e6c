"""What claims and logs are compared with, and what a rule finds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

from servelab.core.yaml_file import metric_label
from servelab.recorded.logs import Logs
from servelab.recorded.readers import VALUE, Block
from servelab.recorded.readers.figures import ValueRange, total
from servelab.study.recorded.study import RecordedCandidate, RecordedStudy

Verdict = Literal["contradicted", "arithmetic right, figures unsound", "unproven", "rounded", "confirmed"]
"""The worst first. `confirmed`: equal to the published digit; `rounded`: different, but rounding explains it;
`unproven`: the logs lack the figures; `arithmetic right, figures unsound`: it would be one of the first two, but a rate
that it rests on is not tokens / duration; `contradicted` otherwise."""
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
Row = dict[str, Any]
"""A finding: a row of `schemas.CLAIMS`, without study, source and rule."""


def finding(claim: str, verdict: Verdict, reason: str, **facts: Any) -> Row:
    """The claim in words, its verdict, and the arithmetic or the fact behind that; further columns are `facts`."""
    return {"claim": claim, "verdict": verdict, "reason": reason, "where": "", **facts}


def verdict_of(holds: bool) -> Verdict:
    """Of a claim that holds or not."""
    return "confirmed" if holds else "contradicted"


def summary(found: Row) -> str:
    """In short: the contradicted figure and its recomputed value, or the reason."""
    if found["verdict"] != "contradicted" or not found.get("metric") or not found.get("published"):
        return str(found["reason"])
    return f"{metric_label(found['metric'])} is {found['published']}, by the rest of the log {found['recomputed']}"


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

    def finding(self, claim: str, verdict: Verdict, reason: str, **facts: Any) -> Row:
        """A finding on it; the claim ends with its name."""
        where = f"{claim} {self.reference}, {self.workload}"
        return finding(where, verdict, reason, candidate=self.reference, workload=self.workload) | facts


AMOUNTS = {"output_tokens_per_s": ("output_tokens",), "total_tokens_per_s": ("input_tokens", "output_tokens")}
"""Rate → what it counts."""


class TokenRate(NamedTuple):
    """A token rate that a log prints, and tokens / duration of the same log."""

    printed: float
    computed: float
    agrees: bool
    """Whether rounding explains the difference."""


def token_rate(block: Block, metric: str) -> TokenRate | None:
    """None for other metrics, or if the log lacks a part."""
    printed = (each for each in block.figures if each.statistic == VALUE)
    of = {each.metric: ValueRange.around(each.value, each.half_unit) for each in printed if each.value is not None}
    parts = AMOUNTS.get(metric, ())
    if not parts or not block.value("duration_s") or not of.keys() >= {metric, *parts}:
        return None
    computed = total(of, parts) / of["duration_s"]
    return TokenRate(of[metric].value, computed.value, of[metric].meets(computed))


def unsound_rates(block: Block) -> dict[str, float]:
    """Token rates that the log prints otherwise than its tokens and duration give, and what these give."""
    rates = {metric: token_rate(block, metric) for metric in AMOUNTS}
    return {metric: rate.computed for metric, rate in rates.items() if rate is not None and not rate.agrees}


def honest_rates(logs: Logs, candidates: Iterable[str], workload: str, metric: str) -> dict[str, ValueRange] | None:
    """Candidate → tokens / duration, its mean over rounds; None unless a rate that some log prints differs from it."""
    rates, agree = {}, True
    for name in candidates:
        found = [token_rate(block, metric) for block in logs.rounds(name, workload)]
        computed = [rate.computed for rate in found if rate is not None]
        if not computed or len(computed) < len(found):
            return None
        agree &= all(rate is not None and rate.agrees for rate in found)
        rates[name] = ValueRange.around(sum(computed) / len(computed))
    return None if agree else rates


def plain(value: float) -> str:
    """A figure with all its digits."""
    return f"{value:.10g}"
