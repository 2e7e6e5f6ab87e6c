"""Recomputes what was published on a recorded study, and checks its logs for contradictions."""

from servelab.core.cli import RuleJob, run_rule
from servelab.metrics.tables.io import write_table
from servelab.recorded.audit import AuditEvidence, audit
from servelab.recorded.logs import Logs, studies_beside
from servelab.search.decision import Decision
from servelab.search.recommended import Recommended
from servelab.study.recorded.plan import RecordedPlan
from servelab.study.recorded.study import load_recorded


def main(rule: RuleJob) -> None:
    folder = rule.input.study.parent
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


if __name__ == "__main__":
    run_rule(main)
