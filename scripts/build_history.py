"""Compares the versions of a study's engines: the same configurations side by side, and the study's answers."""

from pathlib import Path

from servelab.core.cli import RuleJob, run_rule
from servelab.metrics.tables.io import write_table
from servelab.search.project import load_project
from servelab.search.versions import answers_table, build_history, read_answers
from servelab.study.plan import Plan


def main(rule: RuleJob) -> None:
    project = load_project(rule.input.study, Path())
    plans = [Plan.read(path) for path in rule.input.plans]
    answers = read_answers(rule.input.answer.parent)

    use_imported = rule.params.use_imported == "True"
    write_table(build_history(project, plans, Path("results/runs"), use_imported=use_imported), rule.output.history)
    write_table(answers_table(project, answers), rule.output.answers)


if __name__ == "__main__":
    run_rule(main)
