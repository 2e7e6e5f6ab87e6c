"""Plans one stage of a study: which runs it needs, each with its complete specification."""

import argparse
import json
from pathlib import Path

from servelab.cli import run
from servelab.files import write_json
from servelab.plan import Plan, baseline, plan_stage, winner_of
from servelab.project import load_project


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--study", type=Path, required=True, help="config/studies/<study>.yaml")
    parser.add_argument("--root", type=Path, default=Path(), help="folder that config/ and envs/ lie in")
    parser.add_argument("--stage", required=True)
    parser.add_argument("--previous-plan", type=Path, help="plan of the stage before, if there is one")
    parser.add_argument("--previous-decision", type=Path, help="its decision: this stage starts from its winner")
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()

    project = load_project(arguments.study, arguments.root)
    incumbent = baseline(project)
    if arguments.previous_plan:
        previous = Plan.model_validate_json(arguments.previous_plan.read_text(encoding="utf-8"))
        decision = json.loads(arguments.previous_decision.read_text(encoding="utf-8"))
        incumbent = winner_of(previous, decision["winner"]["candidate"])
    plan = plan_stage(project, arguments.stage, incumbent)
    write_json(arguments.output, plan.model_dump(mode="json"))


if __name__ == "__main__":
    run(main)
