"""Whether two runs served the same requests: a gain from runs that did not is no gain."""

from __future__ import annotations

from collections.abc import Iterator

from servelab.audit import Evidence, Finding, claim_rule
from servelab.audit.numbers import plain
from servelab.recorded.claims import ChangeClaim, Claim, DifferenceClaim, OrderClaim
from servelab.recorded.logs import Logs

UNLIKE = 0.01
"""Difference from which requests are others: below it lies what a few failures of a thousand change."""


def served_alike(logs: Logs, side: str, against: str, workload: str) -> Iterator[Finding]:
    """One finding for two candidates on a workload; none where a log does not count successes and input tokens."""
    texts, alike = [], True
    for metric in ("requests_completed", "input_tokens"):
        pair = [logs.quantity(name, workload, metric) for name in (side, against)]
        values = [quantity.value for quantity in pair if quantity is not None]
        if len(values) == 2:
            alike &= abs(values[0] - values[1]) <= UNLIKE * max(values)
            texts.append(f"{plain(values[0])} and {plain(values[1])} {metric.replace('_', ' ')}")
    if texts:
        yield Finding(
            f"{side} and {against} served alike, {workload}",
            "confirmed" if alike else "contradicted",
            "; ".join(texts),
            candidate=side,
            against=against,
            workload=workload,
        )


@claim_rule(
    "like_with_like",
    claims=(ChangeClaim, DifferenceClaim, OrderClaim),
    compares="successes and input tokens of the runs that a gain is taken from",
    tolerance=f"{100 * UNLIKE:g} %",
)
def _like_with_like(claim: Claim, evidence: Evidence) -> Iterator[Finding]:
    assert isinstance(claim, ChangeClaim | DifferenceClaim | OrderClaim)
    names = claim.candidates if isinstance(claim, OrderClaim) else [claim.candidate, claim.against]
    for name in names[:-1]:
        if name != names[-1]:
            yield from served_alike(evidence.logs, name, names[-1], claim.workload)
