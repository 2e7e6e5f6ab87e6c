"""Recorded studies: plans of their stages, tables read from their logs, and an audit of what was published."""

from __future__ import annotations

import shutil
from pathlib import Path

from servelab.core.cli import RuleJob, run_rule
from servelab.metrics.tables.io import write_table
from servelab.recorded import log_tables
from servelab.recorded.audit import AuditEvidence, audit
from servelab.recorded.logs import Logs, studies_beside
from servelab.search.decision import Decision
from servelab.search.recommended import Recommended
from servelab.study.recorded.plan import RecordedPlan, plan_recorded
from servelab.study.recorded.study import LOGS, load_recorded

STUDIES = Path("config/recorded")


def parse_recorded(rule: RuleJob) -> None:
    folder = STUDIES / rule.wildcards.study
    study = load_recorded(folder)
    incumbent = study.baseline
    if "previous_plan" in rule.input:
        previous = RecordedPlan.read(rule.input.previous_plan)
        incumbent = previous.reference_of(Decision.read(rule.input.previous_decision).winner.candidate)
    plan = plan_recorded(study, folder, rule.wildcards.stage, incumbent)
    for name, table in log_tables.parse_recorded(study, plan, folder).items():
        write_table(table, rule.output[name])
    plan.write(rule.output.plan)


def audit_claims(rule: RuleJob) -> None:
    """Recomputes what was published, checks the logs for contradictions, and puts them beside the results."""
    folder = STUDIES / rule.wildcards.study
    study = load_recorded(folder)
    plans = [RecordedPlan.read(path) for path in rule.input.plans]
    decisions = [Decision.read(path) for path in rule.input.decisions]
    chosen = {
        plan.stage: plan.reference_of(decision.winner.candidate)
        for plan, decision in zip(plans, decisions, strict=True)
    }
    command = Recommended.read(rule.input.recommended).command
    evidence = AuditEvidence(study, Logs(study, folder), chosen, command, studies_beside(folder))
    write_table(audit(evidence), rule.output.claims)
    rule.output.logs.mkdir(parents=True, exist_ok=True)
    for log in {folder / LOGS / file for _, _, file in study.log_files()}:
        if log.is_file():  # the audit lists the others
            shutil.copyfile(log, rule.output.logs / log.name)


if __name__ == "__main__":
    run_rule(globals())
