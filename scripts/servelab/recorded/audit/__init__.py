"""Audit of a recorded study: recomputes what was published, and checks the logs for contradictions.

A *claim rule* checks a claim of `study.yaml`, a *run rule* the logs of
one candidate on one workload. Rules are general: none knows a study, a tool or an engine. Their findings are the rows
of `claims.parquet`; findings of run rules are also the checks of the run, and decide its validity.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from servelab.metrics.tables import schemas
from servelab.recorded.audit.claim_rules import CLAIM_RULES
from servelab.recorded.audit.findings import (
    RUN_RULES,
    VERDICTS,
    AuditEvidence,
    Row,
    Run,
    RunRule,
    summary,
)

__all__ = ["RUN_RULES", "VERDICTS", "AuditEvidence", "Run", "RunRule", "audit", "summary"]

_RANKS = {"chosen", "recommended", "order", "broken_log", "served_model", "never_ran", "printed_twice"}
_RANKS |= {"like_the_baseline"}
"""Rules on which candidate is better, or may be."""
_PERCENTAGES = ("change", "success_rate")
"""Rules on numbers that are percentages."""


def audit(evidence: AuditEvidence) -> pa.Table:
    """Schema CLAIMS: the findings on claims, then those on logs; a finding is listed once.

    The worst verdict is first; in it what changes a rank, then by size; what is alike is in the study file's order.
    """
    study = {"study": evidence.study.study}
    found = ({**study, "source": source, "rule": rule, **row} for source, rule, row in _findings(evidence))
    rows = [dict(row) for row in dict.fromkeys(tuple(row.items()) for row in found)]
    rows = [row | {"points": _points(row)} for row in rows]
    return pa.Table.from_pylist(sorted(rows, key=_order), schema=schemas.CLAIMS)


def _order(row: Row) -> tuple[bool, int, bool, float]:
    return row["source"] == "logs", VERDICTS.index(row["verdict"]), not _changes_rank(row), -(row["points"] or 0.0)


def _changes_rank(row: Row) -> bool:
    """Whether a row is on who is better: also a gain that is a loss."""
    published, recomputed = row.get("published_value"), row.get("recomputed_value")
    if row["rule"] in ("change", "difference") and published is not None and recomputed is not None:
        return bool(published * recomputed < 0)
    return row["rule"] in _RANKS


def _points(row: Row) -> float | None:
    """The error of a number in points of percent: of a percentage the difference, of others the relative error."""
    published, recomputed = row.get("published_value"), row.get("recomputed_value")
    if published is None or recomputed is None:
        return None
    if row["rule"] in _PERCENTAGES:
        return abs(float(published) - float(recomputed))
    return abs(100 * (float(published) / float(recomputed) - 1)) if recomputed else None


def _findings(evidence: AuditEvidence) -> Iterator[tuple[str, str, Row]]:
    study = evidence.study
    for claim in study.claims:
        for look in CLAIM_RULES[claim.kind]:
            name = look.__name__[1:].replace("pair", claim.kind)
            yield from (("publication", name, found) for found in look(claim, evidence))
    for reference, candidate in study.candidates.items():
        for workload in dict.fromkeys([*candidate.logs, *candidate.commands, study.objective.on]):
            run = Run(study, evidence.logs, reference, workload)
            for rule in RUN_RULES:
                yield from (("logs", rule.name, found) for found in rule.look(run))
