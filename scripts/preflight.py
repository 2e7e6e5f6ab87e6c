"""Checks studies before any accelerator is reserved and prints the findings; exits 1 if there is an error."""

from pathlib import Path

from servelab.core.cli import RuleJob, run_rule
from servelab.core.errors import ServelabError
from servelab.core.files import write_json
from servelab.search.preflight import preflight, render
from servelab.search.project import load_project


def main(rule: RuleJob) -> None:
    results = Path("results")
    wrong = []
    for file in rule.params.studies.split():
        project = load_project(Path(file), Path())
        rows = preflight(project, results)
        study = project.study.study
        write_json(results / "studies" / study / "preflight.json", [row.model_dump() for row in rows])
        print(f"{render(study, rows)}\n", flush=True)
        wrong += [row for row in rows if row.verdict == "error"]
    if wrong:
        raise ServelabError(f"preflight: {len(wrong)} error{'s'[: len(wrong) - 1]}, see the tables above")


if __name__ == "__main__":
    run_rule(main)
