"""Audit of a recorded study: recomputes what was published, and checks the logs for contradictions.

A rule is one function that registers itself. A *claim rule* checks a claim of `study.yaml`, a *run rule* the logs of
one candidate on one workload. Rules are general: none knows a study, a tool or an engine. Their findings are the rows
of `claims.parquet`; findings of run rules are also the checks of the run, and decide its validity.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from servelab.core.registry import Registry
from servelab.core.yaml_file import metric_label
from servelab.recorded.logs import Logs
from servelab.recorded.readers import Block
from servelab.results.checks import Level
from servelab.study.recorded.published_claims import Claim
from servelab.study.recorded.study import RecordedCandidate, RecordedStudy

Verdict = Literal["contradicted", "unproven", "arithmetic right, figures unsound", "rounded", "confirmed"]
"""`confirmed`: equal to the published digit; `rounded`: different, but rounding explains it; `unproven`: the logs lack
the figures; `arithmetic right, figures unsound`: it would be one of the first two, but a rate that it rests on is not
tokens / duration; `contradicted` otherwise."""


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


@dataclass(frozen=True)
class ClaimRule:
    """How claims of some kinds are recomputed."""

    name: str
    claims: tuple[type, ...]
    """Types of claims that it checks."""
    compares: str
    tolerance: str
    look: Callable[[Claim, AuditEvidence], Iterator[AuditFinding]]


@dataclass(frozen=True)
class RunRule:
    """What the logs of a run must agree on."""

    name: str
    compares: str
    tolerance: str
    fails_as: Level
    """Validity of a run that it contradicts: `suspect` or `invalid`."""
    action: str
    look: Callable[[Run], Iterator[AuditFinding]]
    of_command: bool = False
    """Whether it needs no logs, so that it also checks candidates that crashed or were never run."""


ClaimLook = Callable[[Claim, AuditEvidence], Iterator[AuditFinding]]
RunLook = Callable[[Run], Iterator[AuditFinding]]

CLAIM_RULES: Registry[ClaimRule] = Registry("claim rule")
RUN_RULES: Registry[RunRule] = Registry("run rule")


def claim_rule(
    name: str, *, claims: tuple[type, ...], compares: str, tolerance: str
) -> Callable[[ClaimLook], ClaimLook]:
    """Registers the decorated function as a claim rule."""

    def register(look: ClaimLook) -> ClaimLook:
        CLAIM_RULES.register(name, ClaimRule(name, claims, compares, tolerance, look))
        return look

    return register


def run_rule(
    name: str, *, compares: str, tolerance: str, fails_as: Level, action: str, of_command: bool = False
) -> Callable[[RunLook], RunLook]:
    """Registers the decorated function as a run rule."""

    def register(look: RunLook) -> RunLook:
        RUN_RULES.register(name, RunRule(name, compares, tolerance, fails_as, action, look, of_command))
        return look

    return register


CLAIM_RULES.load(__name__)
