"""Computes what was published of a recorded study again, and holds its logs against themselves."""

import argparse
import json
from pathlib import Path

from servelab.audit import Evidence
from servelab.audit.table import audit
from servelab.cli import run
from servelab.parse import write_table
from servelab.recorded.logs import Logs
from servelab.recorded.plan import RecordedPlan
from servelab.recorded.study import load_recorded


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
        plan = RecordedPlan.model_validate_json(planned.read_text(encoding="utf-8"))
        decision = json.loads(decided.read_text(encoding="utf-8"))
        chosen[plan.stage] = plan.reference_of(decision["winner"]["candidate"])
    recommended = json.loads(arguments.recommended.read_text(encoding="utf-8"))
    evidence = Evidence(study, Logs(study, arguments.study), chosen, recommended["command"])
    write_table(audit(evidence), arguments.output)


if __name__ == "__main__":
    run(main)
