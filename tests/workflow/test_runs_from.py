"""A workflow that takes runs from another results folder instead of measuring them (`runs_from`)."""

import json
import shutil

import pytest


@pytest.mark.slow
def test_what_another_folder_has_is_not_measured(workspace, tmp_path):
    other = tmp_path / "of the team"
    other.mkdir()
    (workspace.folder / "results/runs").rename(other / "runs")
    for made in ("studies", "workloads", "logs"):
        shutil.rmtree(workspace.folder / "results" / made)
    shutil.rmtree(workspace.folder / ".snakemake")
    runs = {path.name for path in (other / "runs").glob("[0-9a-f]*")}
    lost = next(run for run in sorted(runs) if json.loads((other / "runs" / run / "status.json").read_text())["reason"])
    shutil.rmtree(other / "runs" / lost)
    workspace.write("config/config.yaml", f"studies: [tiny]\nruns_from: [{json.dumps(str(other))}]\n")

    said = workspace.snakemake("-n")
    assert f"{other}: has " in said and "of the missing runs, which are not measured again" in said
    assert not (workspace.folder / "results/runs").exists()

    said = workspace.snakemake()
    imported = {path.parent.name for path in workspace.folder.glob("results/runs/*/imported.json")}
    assert imported == runs - {lost} and set(workspace.runs()) == runs
    report = (workspace.folder / "results/studies/tiny/report.html").read_text()
    assert f"{len(imported)} of {len(runs)} runs were not measured here but imported from {other}" in report
    assert "Nothing to be done" in workspace.snakemake()
