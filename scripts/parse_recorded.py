"""Plans a stage of a recorded study and reads its logs into the tables that a live stage has."""

from servelab.core.cli import RuleJob, run_rule
from servelab.metrics.tables.io import write_table
from servelab.recorded.log_tables import parse_recorded
from servelab.search.decision import Decision
from servelab.study.recorded.plan import RecordedPlan, plan_recorded
from servelab.study.recorded.study import load_recorded


def main(rule: RuleJob) -> None:
    folder = rule.input.study.parent
    study = load_recorded(folder)
    incumbent = study.baseline
    if "previous_plan" in rule.input:
        previous = RecordedPlan.read(rule.input.previous_plan)
        incumbent = previous.reference_of(Decision.read(rule.input.previous_decision).winner.candidate)
    plan = plan_recorded(study, folder, rule.wildcards.stage, incumbent)
    for name, table in parse_recorded(study, plan, folder).items():
        write_table(table, rule.output[name])
    plan.write(rule.output.plan)


if __name__ == "__main__":
    run_rule(main, without_pandas=True)
