"""Plans one stage of a study: the runs that it needs, each with its complete specification."""

from pathlib import Path

from servelab.core.cli import RuleJob, run_rule
from servelab.metrics.tables import schemas
from servelab.metrics.tables.io import read_table
from servelab.search import strategies as search
from servelab.search.decision import Decision
from servelab.search.power import power_text
from servelab.search.project import load_project
from servelab.search.proof_plan import ProofStage, promised_percent, search_noise
from servelab.search.strategy import PastStage
from servelab.study.plan import Plan
from servelab.study.study import CONFIRM_FIRST


def main(rule: RuleJob) -> None:
    plans = [Plan.read(path) for path in rule.input.get("past_plans", [])]
    decisions = [Decision.read(path) for path in rule.input.get("past_decisions", [])]
    tables = [read_table(path, schemas.STAGE_TABLE) for path in rule.input.get("past_tables", [])]
    past = [PastStage(*stage) for stage in zip(plans, decisions, tables, strict=True)]
    before = None
    if "before_plan" in rule.input:
        before = ProofStage(Plan.read(rule.input.before_plan), read_table(rule.input.before_table, schemas.STAGE_TABLE))
    project = load_project(rule.input.study, Path())
    plan = search.plan(project, rule.wildcards.stage, past, before)
    promised = promised_percent(project.study, past)
    if plan.stage == CONFIRM_FIRST and len(plan.candidates) > 1 and promised:
        found = power_text(project.study, search_noise(project.study, past), [abs(promised)], "the promised gain")
        plan = plan.model_copy(update={"expected": found})
        print(found)
    plan.write(rule.output.plan)


if __name__ == "__main__":
    run_rule(main)
