"""Audit of a recorded study: what was published, and what its logs say of themselves, computed again.

A rule is one function that registers itself. A *claim rule* looks at a claim of `study.yaml`, a *run rule* at the logs
of one candidate on one workload. Rules are general: none knows a study, a tool or an engine. Their findings are the
rows of `claims.parquet`; those of run rules are also the checks of the run, and decide its validity.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from servelab.figures import metric_label
from servelab.readers import Block
from servelab.recorded.claims import Claim
from servelab.recorded.logs import Logs
from servelab.recorded.study import RecordedCandidate, RecordedStudy
from servelab.registry import Registry
from servelab.validity import Level

Verdict = Literal["contradicted", "unproven", "rounded", "confirmed"]
"""`confirmed` to the published digit; `rounded`: not, but by no more than rounding explains; `unproven`: the logs
cannot tell; `contradicted` otherwise."""


@dataclass(frozen=True)
class Finding:
    """What a rule found; None where a field says nothing of it."""

    claim: str
    """What is claimed, in words."""
    verdict: Verdict
    reason: str
    """The arithmetic or the fact behind the verdict."""
    published: str | None = None
    """As printed; None where nothing is said."""
    recomputed: str | None = None
    """What the logs give, to the digits that were published."""
    published_value: float | None = None
    recomputed_value: float | None = None
    candidate: str | None = None
    against: str | None = None
    workload: str | None = None
    metric: str | None = None
    statistic: str | None = None
    basis: str | None = None
    where: str = ""
    """Section of the publication, or file of the log."""
    line: int | None = None

    @property
    def told(self) -> str:
        """In short: the figure that is contradicted and what it should be, or the reason."""
        if self.verdict != "contradicted" or self.metric is None or self.published is None:
            return self.reason
        return f"{metric_label(self.metric)} is {self.published}, by the rest of the log {self.recomputed}"


@dataclass(frozen=True)
class Evidence:
    """What claims are held against."""

    study: RecordedStudy
    logs: Logs
    chosen: Mapping[str, str]
    """Stage → the candidate that it ended with when it was decided again, as `<stage>/<candidate>`."""
    recommended: str
    """The serving command that the search over the logs ends with."""


@dataclass(frozen=True)
class Run:
    """A candidate on a workload it has logs of."""

    study: RecordedStudy
    logs: Logs
    reference: str
    workload: str

    @property
    def candidate(self) -> RecordedCandidate:
        """The candidate, as the study states it."""
        return self.study.candidates[self.reference]

    @property
    def blocks(self) -> list[Block]:
        """Its results, one a round."""
        return self.logs.rounds(self.reference, self.workload)


@dataclass(frozen=True)
class ClaimRule:
    """How claims of some kinds are computed again."""

    name: str
    claims: tuple[type, ...]
    """Types of claims it looks at."""
    compares: str
    tolerance: str
    look: Callable[[Claim, Evidence], Iterator[Finding]]


@dataclass(frozen=True)
class RunRule:
    """What the logs of a run have to agree in."""

    name: str
    compares: str
    tolerance: str
    fails_as: Level
    """Validity of a run that it contradicts: `suspect` or `invalid`."""
    action: str
    look: Callable[[Run], Iterator[Finding]]


CLAIM_RULES: Registry[ClaimRule] = Registry("claim rule")
RUN_RULES: Registry[RunRule] = Registry("run rule")


def claim_rule(
    name: str, *, claims: tuple[type, ...], compares: str, tolerance: str
) -> Callable[[Callable[[Claim, Evidence], Iterator[Finding]]], Callable[[Claim, Evidence], Iterator[Finding]]]:
    """Registers the decorated function as a claim rule."""

    def register(
        look: Callable[[Claim, Evidence], Iterator[Finding]],
    ) -> Callable[[Claim, Evidence], Iterator[Finding]]:
        CLAIM_RULES.register(name, ClaimRule(name, claims, compares, tolerance, look))
        return look

    return register


def run_rule(
    name: str, *, compares: str, tolerance: str, fails_as: Level, action: str
) -> Callable[[Callable[[Run], Iterator[Finding]]], Callable[[Run], Iterator[Finding]]]:
    """Registers the decorated function as a run rule."""

    def register(look: Callable[[Run], Iterator[Finding]]) -> Callable[[Run], Iterator[Finding]]:
        RUN_RULES.register(name, RunRule(name, compares, tolerance, fails_as, action, look))
        return look

    return register


CLAIM_RULES.load(__name__)
