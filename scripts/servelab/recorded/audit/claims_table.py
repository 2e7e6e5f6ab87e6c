"""The findings of all rules on a study, as the table `claims`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import pyarrow as pa

from servelab.metrics.tables import schemas
from servelab.recorded.audit import CLAIM_RULES, RUN_RULES, AuditEvidence, AuditFinding, Run

VERDICTS = ("contradicted", "arithmetic right, figures unsound", "unproven", "rounded", "confirmed")
"""Verdicts, the worst first."""
_RANKS = (
    "chosen",
    "recommended",
    "order",
    "broken_log",
    "served_model",
    "never_ran",
    "printed_twice",
    "like_the_baseline",
)
"""Rules on which candidate is better, or may be."""
_PERCENTAGES = ("change", "success_rate")
"""Rules on numbers that are percentages."""

Row = dict[str, Any]


def audit(evidence: AuditEvidence) -> pa.Table:
    """Schema CLAIMS: the findings on claims, then those on logs; a finding is listed once.

    The worst verdict is first; in it what changes a rank, then by size; what is alike is in the study file's order.
    """
    rows: dict[tuple[str, AuditFinding], Row] = {}
    for source, rule, finding in _findings(evidence):
        facts = {"study": evidence.study.study, "source": source, "rule": rule}
        row = {**facts, **asdict(finding)}
        rows.setdefault((rule, finding), row | {"points": _points(row)})
    return pa.Table.from_pylist(sorted(rows.values(), key=_place), schema=schemas.CLAIMS)


def _place(row: Row) -> tuple[bool, int, bool, float]:
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
    for claim in evidence.study.claims:
        for claim_rule in CLAIM_RULES:
            if isinstance(claim, claim_rule.claims):
                yield from (("publication", claim_rule.name, found) for found in claim_rule.look(claim, evidence))
    for reference, candidate in evidence.study.candidates.items():
        for workload in dict.fromkeys([*candidate.logs, *candidate.commands, evidence.study.objective.on]):
            run = Run(evidence.study, evidence.logs, reference, workload)
            for run_rule in RUN_RULES:
                if workload in candidate.logs or run_rule.of_command:
                    yield from (("logs", run_rule.name, found) for found in run_rule.look(run))
