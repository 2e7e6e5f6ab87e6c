"""A change in code that decides an output makes it again, as does deleting it, and neither measures anything."""

import re
import shutil

import pytest

pytestmark = pytest.mark.slow

JOB = re.compile(r"^(?:local)?(?:rule|checkpoint) (?P<rule>\w+):\n(?P<body>(?: {4}.*\n)+)", re.MULTILINE)
DECISION = "results/studies/tiny/stages/engine/decision.json"
CODE = ".snakemake/code.sha256"


def inputs(workspace, *arguments):
    """Inputs of each job of a dry-run, by rule."""
    found = {}
    for job in JOB.finditer(workspace.snakemake("--dry-run", *arguments)):
        listed = re.search(r"^ {4}input: (.*)$", job["body"], re.MULTILINE)
        found.setdefault(job["rule"], set()).update(listed[1].split(", ") if listed else [])
    return found


def test_every_cheap_script_has_its_code_as_input_and_no_measurement_has(workspace):
    found = inputs(workspace, "--forceall")
    assert found.keys() > {"plan_stage", "parse_stage", "decide_stage", "aggregate", "plot_charts", "render_report"}
    for rule in found.keys() - {"all", "collect_runs"}:
        assert CODE in found[rule], rule
    shutil.rmtree(workspace.folder / "results/runs" / min(workspace.runs()))
    assert CODE not in str(inputs(workspace)["measure"])


def test_another_default_of_the_margin_makes_the_decision_again(workspace):
    study = workspace.study()
    del study["objective"]["margin_percent"]
    workspace.write_study(study)
    assert workspace.measured_by(DECISION) == set()
    default = workspace.json(DECISION)["margin_percent"]
    field = "margin_percent: float = Field("
    workspace.edit("scripts/servelab/study/study.py", f"{field}{default}", f"{field}80.0")
    assert workspace.measured_by(DECISION) == set()
    assert workspace.json(DECISION)["margin_percent"] == 80


def test_every_file_of_a_study_is_asked_for_and_made_again_when_deleted(workspace):
    study = workspace.folder / "results/studies/tiny"
    files = {path.relative_to(workspace.folder) for path in study.rglob("*") if path.is_file()}
    folders = {path.parent for path in files if path.parent.name in ("charts", "tables")}
    made = {str(path) for path in files if path.parent not in folders} | {str(folder) for folder in folders}
    assert made <= inputs(workspace, "--forceall")["all"]
    (study / "stages/engine/table.parquet").unlink()
    (study / "checks.parquet").unlink()
    said = workspace.snakemake("--dry-run")
    for missing in ("stages/engine/table.parquet", "checks.parquet"):
        assert f"reason: Missing output files: results/studies/tiny/{missing}" in said
    assert "rule measure:" not in said
