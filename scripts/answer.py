"""A study's tables and answer, from all its stages; the answer is kept for each version of the engines; the history."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow as pa

from servelab.core.cli import RuleJob, run_rule
from servelab.core.errors import ConfigError
from servelab.metrics.tables import schemas
from servelab.metrics.tables.io import read_table, read_tables, write_table
from servelab.results.compare_with_baseline import improvements
from servelab.results.curves import curves_table, device_series
from servelab.search import versions
from servelab.search.candidates_table import CandidatesStage, candidates_table, describe, workload_titles
from servelab.search.decision import Decision, PastStage
from servelab.search.project import load_project
from servelab.search.proof_plan import past_by_second, promised_percent
from servelab.search.recommend import recommend
from servelab.search.recommended import Recommended
from servelab.search.winner_map import front
from servelab.study.plan import Plan
from servelab.study.project import SearchedPlan, SearchedStudy, is_live, load_searched, read_plan, study_path
from servelab.study.study import CONFIRM, Study

RUNS = Path("results/runs")


def aggregate(rule: RuleJob) -> None:
    """Writes description, metrics, checks, curves, percentages against the baseline, candidates, and the answer."""
    search, output = rule.wildcards.search, rule.output
    path = study_path(search)
    study, titles = load_searched(path), workload_titles(path)
    plans = [read_plan(path) for path in rule.input.plans]
    tables = [read_table(path, schemas.STAGE_TABLE) for path in rule.input.tables]
    decisions = [Decision.read(path) for path in rule.input.decisions]
    rounds = read_tables(rule.input.rounds, schemas.ROUNDS)
    metrics = read_tables(rule.input.metrics, schemas.METRICS).drop_duplicates(["run_id", "workload", "metric"])
    checks = read_tables(rule.input.checks, schemas.CHECKS).drop_duplicates(["run_id", "workload", "check"])

    description, table = describe(study, titles), read_tables(rule.input.tables, schemas.STAGE_TABLE)
    description.write(output.study)
    curves = curves_table(description, table, read_tables(rule.input.points, schemas.STAGE_TABLE))
    write_table(curves, output.curves)
    write_table(pa.Table.from_pandas(metrics, schema=schemas.METRICS, preserve_index=False), output.metrics)
    write_table(pa.Table.from_pandas(checks, schema=schemas.CHECKS, preserve_index=False), output.checks)
    write_table(improvements(table, rounds, metrics), output.improvements)
    write_table(candidates_table(study, candidate_stages(rule, plans, tables, decisions)), output.search)
    stages = zip(plans[:-1], decisions, tables[:-1], strict=True)
    past = [PastStage(plan, decision, table) for plan, decision, table in stages if isinstance(plan, Plan)]
    answer = recommend(
        study,
        plans[-1],
        tables[-1],
        read_table(output.improvements, schemas.IMPROVEMENTS),
        RUNS if is_live(search) else None,
        titles,
        _promised(study, past, plans[-1]),
        decisions,
    )
    if isinstance(study, Study) and study.second:
        second = _by_second(rule, study.second, past, titles)
        answer = answer.model_copy(update={"second": second, "front": front(study, study.second, past)})
    answer.write(output.recommended)


def _by_second(rule: RuleJob, study: Study, past: list[PastStage], titles: dict[str, str]) -> Recommended:
    """The answer by the second of two objectives; `study` is the study by it."""
    plan = Plan.read(rule.input.second_plan).model_copy(update={"stage": CONFIRM})
    table = read_table(rule.input.second_table, schemas.STAGE_TABLE).assign(stage=CONFIRM)
    metrics = read_table(rule.input.second_metrics, schemas.METRICS)
    figures = metrics.assign(round=0, value=metrics[study.objective.statistic]).dropna(subset="value")
    gains = improvements(table, figures, metrics).to_pandas()
    return recommend(study, plan, table, gains, RUNS, titles, _promised(study, past_by_second(past), plan))


def candidate_stages(
    rule: RuleJob, plans: list[SearchedPlan], tables: list[pd.DataFrame], decisions: list[Decision]
) -> list[CandidatesStage]:
    stages = [CandidatesStage(*each) for each in zip(plans, tables, [*decisions, None], strict=True)]
    last = plans[-1]
    if "second_plan" in rule.input:
        proof = read_plan(rule.input.second_plan), read_table(rule.input.second_table, schemas.STAGE_TABLE)
        stages.insert(-1, CandidatesStage(*proof, None))
    if "before_plan" in rule.input and isinstance(last, Plan) and last.left_out:  # else `confirm` has its runs
        first = read_plan(rule.input.before_plan), read_table(rule.input.before_table, schemas.STAGE_TABLE)
        stages.insert(-1, CandidatesStage(*first, None))
    return stages


def _promised(study: SearchedStudy, past: list[PastStage], last: SearchedPlan) -> float | None:
    """The change that the search of a live study promised."""
    is_live = isinstance(study, Study) and isinstance(last, Plan)
    return promised_percent(study, past, last.candidates[-1].configuration) if is_live else None


def keep_answer(rule: RuleJob) -> None:
    project = load_project(study_path(f"studies/{rule.wildcards.study}"), Path())
    wanted = versions.versions_id(versions.study_versions(project))
    if rule.wildcards.versions_id != wanted:
        raise ConfigError(f"{rule.output.answer}: the answer for the study's versions is {wanted}.json")
    recommended = Recommended.read(rule.input.recommended)
    proved = recommended.proof and recommended.proof.candidate
    candidate = proved or Decision.read(rule.input.decisions[-1]).winner.candidate
    table = read_table(rule.input.table, schemas.STAGE_TABLE)
    versions.make_answer(project, recommended, candidate, table, RUNS).write(rule.output.answer)


def build_history(rule: RuleJob) -> None:
    """Writes the same configurations on all versions, the answers under all, and the few rows that charts draw."""
    project = load_project(study_path(f"studies/{rule.wildcards.study}"), Path())
    plans = [Plan.read(path) for path in rule.input.plans]
    write_table(versions.build_history(project, plans, RUNS), rule.output.history)
    write_table(versions.answers_table(project, versions.read_answers(rule.input.answer.parent)), rule.output.answers)
    table = read_table(rule.input.tables[-1], schemas.STAGE_TABLE)
    write_table(device_series(table, RUNS), rule.output.device_series)


if __name__ == "__main__":
    run_rule(globals())
