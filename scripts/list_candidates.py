"""Writes the table of a study's candidates: outcome, reason and cost of each, and the stages that share its runs."""

from servelab.core.cli import RuleJob, run_rule
from servelab.metrics.tables import schemas
from servelab.metrics.tables.io import read_table, write_table
from servelab.search.candidates_table import CandidatesStage, candidates_table
from servelab.search.decision import Decision
from servelab.study.plan import Plan
from servelab.study.project import load_searched, read_plan, study_path


def main(rule: RuleJob) -> None:
    plans = [read_plan(path) for path in rule.input.plans]
    tables = [read_table(path, schemas.STAGE_TABLE) for path in rule.input.tables]
    decisions = [Decision.read(path) for path in rule.input.decisions]
    stages = [CandidatesStage(*each) for each in zip(plans, tables, [*decisions, None], strict=True)]
    if (
        "before_plan" in rule.input and isinstance(plans[-1], Plan) and plans[-1].left_out
    ):  # else `confirm` has its runs
        first = read_plan(rule.input.before_plan), read_table(rule.input.before_table, schemas.STAGE_TABLE)
        stages.insert(-1, CandidatesStage(*first, None))
    study = load_searched(study_path(rule.wildcards.search))
    write_table(candidates_table(study, stages), rule.output.search)


if __name__ == "__main__":
    run_rule(main)
