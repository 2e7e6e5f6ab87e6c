"""Writes the description of a study for its report: titles, model, hardware, engines, objective, protocol."""

from servelab.core.cli import RuleJob, run_rule
from servelab.search.candidates_table import describe, workload_titles
from servelab.study.project import load_searched, study_path


def main(rule: RuleJob) -> None:
    path = study_path(rule.wildcards.search)
    describe(load_searched(path), workload_titles(path)).write(rule.output.study)


if __name__ == "__main__":
    run_rule(main)
