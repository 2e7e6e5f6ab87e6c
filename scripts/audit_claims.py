"""Recomputes what was published on a recorded study, and checks its logs for contradictions."""

import argparse
from pathlib import Path

from servelab.core.cli import run
from servelab.metrics.tables.io import write_table
from servelab.recorded.audit import AuditEvidence
from servelab.recorded.audit.causes import studies_beside
from servelab.recorded.audit.claims_table import audit
from servelab.recorded.logs import Logs
from servelab.search.decision import Decision
from servelab.search.recommended import Recommended
from servelab.study.recorded.plan import RecordedPlan
from servelab.study.recorded.study import load_recorded


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--study", type=Path, required=True, help="folder config/recorded/<study>")
    parser.add_argument("--plans", type=Path, nargs="+", required=True, help="plan.json of every stage that decides")
    parser.add_argument("--decisions", type=Path, nargs="+", required=True, help="their decision.json, in this order")
    parser.add_argument("--recommended", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()

    study = load_recorded(arguments.study)
    chosen = {}
    for planned, decided in zip(arguments.plans, arguments.decisions, strict=True):
        plan = RecordedPlan.read(planned)
        chosen[plan.stage] = plan.reference_of(Decision.read(decided).winner.candidate)
    command = Recommended.read(arguments.recommended).command
    evidence = AuditEvidence(study, Logs(study, arguments.study), chosen, command, studies_beside(arguments.study))
    write_table(audit(evidence), arguments.output)


if __name__ == "__main__":
    run(main)
