"""A change in code that decides an output makes it again, as does deleting it, and neither measures anything."""

import re
import shutil
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

JOB = re.compile(r"^(?:local)?(?:rule|checkpoint) (?P<rule>\w+):\n(?P<body>(?: {4}.*\n)+)", re.MULTILINE)
DECISION = "results/studies/tiny/stages/engine/decision.json"
IMPROVEMENTS = "results/studies/tiny/improvements.parquet"
BESIDE = {
    "name_archive": "--search studies/tiny --output out/name.json",
    "compare_studies": "results/studies/tiny results/studies/tiny --names a b --output out",
}
"""Arguments of the scripts that neither study runs."""


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
        assert f".snakemake/code/{rule}.sha256" in found[rule], rule
    shutil.rmtree(workspace.folder / "results/runs" / min(workspace.runs()))
    assert ".snakemake/code" not in str(inputs(workspace)["measure"])


def test_what_a_script_reads_of_the_code_is_declared(finished, recorded):
    for script, arguments in BESIDE.items():
        command = [sys.executable, f"scripts/{script}.py"]
        command += arguments.format(stage="results/studies/tiny/stages/engine").split()
        subprocess.run(command, cwd=finished.folder, env=finished.environment(), check=True)
    digests = {digest.stem: digest for digest in (finished.folder / ".snakemake/code").glob("*.sha256")}
    assert len(digests) > 15
    for script, digest in digests.items():
        declared = {line.split("  ")[1] for line in digest.read_text().splitlines()}
        traces = [workspace.traced / script for workspace in (finished, recorded)]
        read = {line for trace in traces if trace.exists() for line in trace.read_text().splitlines()}
        assert f"scripts/{script}.py" in read
        assert read <= declared, script


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


def test_another_confidence_makes_decisions_and_improvements_again(workspace):
    files = [workspace.folder / name for name in (DECISION, IMPROVEMENTS)]
    before = [file.stat().st_mtime_ns for file in files]
    workspace.edit("scripts/servelab/metrics/statistics.py", "0.95", "0.999")
    assert workspace.measured_by(*map(str, (DECISION, IMPROVEMENTS))) == set()
    assert all(file.stat().st_mtime_ns > made for file, made in zip(files, before, strict=True))


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
