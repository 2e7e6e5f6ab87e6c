"""Plans a stage of a recorded study and reads its logs into the tables that a live stage has."""

import argparse
from pathlib import Path

from servelab.core.cli import run
from servelab.metrics.tables.io import write_table
from servelab.recorded.log_tables import TABLES, parse_recorded
from servelab.search.decision import Decision
from servelab.study.recorded.plan import RecordedPlan, plan_recorded
from servelab.study.recorded.study import load_recorded


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--study", type=Path, required=True, help="folder config/recorded/<study>")
    parser.add_argument("--stage", required=True)
    parser.add_argument("--previous-plan", type=Path, help="plan of the stage before, if there is one")
    parser.add_argument("--previous-decision", type=Path, help="its decision: this stage starts from its winner")
    parser.add_argument("--output-plan", type=Path, required=True)
    for name in TABLES:
        parser.add_argument(f"--output-{name}", type=Path, required=True)
    arguments = parser.parse_args()

    study = load_recorded(arguments.study)
    incumbent = study.baseline
    if arguments.previous_plan:
        previous = RecordedPlan.read(arguments.previous_plan)
        incumbent = previous.reference_of(Decision.read(arguments.previous_decision).winner.candidate)
    plan = plan_recorded(study, arguments.study, arguments.stage, incumbent)
    for name, table in parse_recorded(study, plan, arguments.study).items():
        write_table(table, getattr(arguments, f"output_{name}"))
    plan.write(arguments.output_plan)


if __name__ == "__main__":
    run(main, without_pandas=True)
