"""Stages of a live study: planned, their records parsed into tables, decided (those of recorded studies too)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from servelab.core.cli import RuleJob, run_rule
from servelab.metrics.tables import schemas
from servelab.metrics.tables.io import read_table, write_table
from servelab.results.parse import parse_plan
from servelab.search import strategies as search
from servelab.search.decision import Decision, PastStage
from servelab.search.forecast import power_text
from servelab.search.project import load_project
from servelab.search.proof_plan import ProofStage, promised_percent, search_noise, within_budget
from servelab.study.plan import Plan
from servelab.study.predictions import Predictions
from servelab.study.project import load_searched, read_plan, study_path
from servelab.study.study import CONFIRM_FIRST, load_study


def plan_stage(rule: RuleJob) -> None:
    plans = [Plan.read(path) for path in rule.input.get("past_plans", [])]
    decisions = [Decision.read(path) for path in rule.input.get("past_decisions", [])]
    tables = [read_table(path, schemas.STAGE_TABLE) for path in rule.input.get("past_tables", [])]
    past = [PastStage(*stage) for stage in zip(plans, decisions, tables, strict=True)]
    before = None
    if "before_plan" in rule.input:
        before = ProofStage(Plan.read(rule.input.before_plan), read_table(rule.input.before_table, schemas.STAGE_TABLE))
    project = load_project(_study(rule), Path())
    if "predicted" in rule.input:
        project = replace(project, predictions=Predictions.read(rule.input.predicted))
    plan = search.plan(project, rule.wildcards.stage, past, before)
    promised = promised_percent(project.study, past)
    if plan.stage == CONFIRM_FIRST and len(plan.candidates) > 1 and promised:
        study = within_budget(project.study, past)
        found = power_text(study, search_noise(study, past), [abs(promised)], "the promised gain")
        plan = plan.model_copy(update={"expected": found})
        print(found)
    plan.write(rule.output.plan)


def parse_stage(rule: RuleJob) -> None:
    study, plan = load_study(_study(rule)).of_stage(rule.wildcards.stage), Plan.read(rule.input.plan)
    for name, table in parse_plan(study, plan, Path("results/runs")).items():
        write_table(table, rule.output[name])


def decide_stage(rule: RuleJob) -> None:
    study = load_searched(study_path(rule.wildcards.search))
    decision = search.decide(study, read_plan(rule.input.plan), read_table(rule.input.table, schemas.STAGE_TABLE))
    decision.write(rule.output.decision)
    print(f"{decision.winner.candidate} goes on: {decision.reason}")


def _study(rule: RuleJob) -> Path:
    return Path(f"config/studies/{rule.wildcards.study}.yaml")


if __name__ == "__main__":
    run_rule(globals())
