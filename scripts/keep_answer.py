"""Keeps a study's answer for the current versions of its engines, beside the answers for other versions."""

from pathlib import Path

from servelab.core.cli import RuleJob, run_rule
from servelab.core.errors import ConfigError
from servelab.metrics.tables import schemas
from servelab.metrics.tables.io import read_table
from servelab.search.decision import Decision
from servelab.search.project import load_project
from servelab.search.recommended import Recommended
from servelab.search.versions import make_answer, study_versions, versions_id


def main(rule: RuleJob) -> None:
    project = load_project(rule.input.study, Path())
    wanted = versions_id(study_versions(project))
    if rule.wildcards.versions_id != wanted:
        raise ConfigError(f"{rule.output.answer}: the answer for the study's versions is {wanted}.json")
    recommended = Recommended.read(rule.input.recommended)
    proved = recommended.proof and recommended.proof.candidate
    candidate = proved or Decision.read(rule.input.decision).winner.candidate
    table = read_table(rule.input.table, schemas.STAGE_TABLE)
    make_answer(project, recommended, candidate, table, Path("results/runs")).write(rule.output.answer)


if __name__ == "__main__":
    run_rule(main)
