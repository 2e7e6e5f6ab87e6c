"""Checks that two runs served the same requests: otherwise a gain between them means nothing."""

from __future__ import annotations

from collections.abc import Iterator

from servelab.recorded.audit import Evidence, Finding, claim_rule
from servelab.recorded.audit.rounding import plain
from servelab.recorded.logs import Logs
from servelab.study.recorded.published_claims import ChangeClaim, Claim, DifferenceClaim, OrderClaim

UNLIKE = 0.01
"""Relative difference above which requests are not the same; a few failures in a thousand stay below it."""


def served_alike(logs: Logs, side: str, against: str, workload: str) -> Iterator[Finding]:
    """One finding for two candidates on a workload; none if the logs count neither successes nor input tokens."""
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
