"""The findings of all rules on a study, as the table `claims`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import pyarrow as pa

from servelab.metrics.tables import schemas
from servelab.recorded.audit import CLAIM_RULES, RUN_RULES, Evidence, Finding, Run


def audit(evidence: Evidence) -> pa.Table:
    """Schema CLAIMS: every claim in the order of the study file, then every log; a finding is listed once."""
    rows: dict[tuple[str, Finding], dict[str, Any]] = {}
    for source, rule, finding in _findings(evidence):
        facts = {"study": evidence.study.study, "source": source, "rule": rule}
        rows.setdefault((rule, finding), {**facts, **asdict(finding)})
    return pa.Table.from_pylist(list(rows.values()), schema=schemas.CLAIMS)


def _findings(evidence: Evidence) -> Iterator[tuple[str, str, Finding]]:
    for claim in evidence.study.claims:
        for claim_rule in CLAIM_RULES:
            if isinstance(claim, claim_rule.claims):
                yield from (("publication", claim_rule.name, found) for found in claim_rule.look(claim, evidence))
    for reference, candidate in evidence.study.candidates.items():
        for workload in candidate.logs:
            run = Run(evidence.study, evidence.logs, reference, workload)
            for run_rule in RUN_RULES:
                yield from (("logs", run_rule.name, found) for found in run_rule.look(run))
