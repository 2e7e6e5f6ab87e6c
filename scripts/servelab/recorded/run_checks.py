"""Checks of a recorded run: the audit's run rules on its command and its logs, and the physical limit."""

from __future__ import annotations

from typing import Any

from servelab.recorded.audit import RUN_RULES, Run, RunRule
from servelab.recorded.log_limits import limit_of_recorded
from servelab.results.checks import CHECKS, Saw, invalid, not_applicable, ok, suspect
from servelab.results.checks.limit import judge

_FAILED = {"suspect": suspect, "invalid": invalid}


def check_recorded(run: Run) -> list[dict[str, Any]]:
    """A row of `schemas.CHECKS` for each run rule and for the physical limit, without study, run_id and workload."""
    rows = []
    for rule in RUN_RULES:
        saw = _saw(rule, run)
        action = rule.action if saw.level in _FAILED else None
        rows.append({"check": rule.name, "level": saw.level, "saw": saw.text, "action": action})
    found, limit = judge(limit_of_recorded(run)), CHECKS.get("above_physical_limit")
    action = limit.action if found.level in _FAILED else None
    return [*rows, {"check": limit.name, "level": found.level, "saw": found.text, "action": action}]


def _saw(rule: RunRule, run: Run) -> Saw:
    findings = list(rule.look(run))
    contradicted = [finding for finding in findings if finding.verdict == "contradicted"]
    if not findings:
        return not_applicable(f"nothing is known to compare: {rule.compares}")
    texts = "; ".join(dict.fromkeys(finding.summary for finding in contradicted or findings))
    return _FAILED[rule.fails_as](texts) if contradicted else ok(texts)
