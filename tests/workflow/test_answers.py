"""Answers of a real llama.cpp: weights that were damaged in the file are found out, a second start is not."""

import shutil
import subprocess
import sys

import pandas as pd
import pytest
from damaged_weights import damage
from workspace import Workspace, tiny_study

from servelab.assets.model_files import load_model
from servelab.core.identity import content_id

STUDY = "results/studies/tiny"
QUESTIONS = 16


def asking_study(damaged):
    study = tiny_study()
    source = {"kind": "path", "path": str(damaged), "revision": "damaged"}
    study["model"]["variants"] = {"damaged": {"source": source, "format": "gguf"}}
    study["stages"] = [{"name": "weights", "candidates": [{"model": "damaged"}]}]
    study["search"] |= {"recheck": False}
    study["objective"]["margin_percent"] = 0
    study["protocol"]["round_timeout_s"] = 600
    study["workloads"] = ["tiny"]
    study["answers"] = {"num_questions": QUESTIONS}
    return study


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    """The finished study of the damaged weights."""
    folder = tmp_path_factory.mktemp("asked")
    workspace = Workspace.create(folder / "project")
    model = f"results/models/{content_id(tiny_study()['model']['source'])}/model.json"
    workspace.snakemake(model)
    damaged = folder / "damaged.gguf"
    shutil.copyfile(load_model(workspace.folder / model)[1], damaged)
    damage(damaged)
    workspace.write_study(asking_study(damaged))
    workspace.snakemake(f"{STUDY}/report.md", f"{STUDY}/recommended.json")
    return workspace


def shown_recommendation(workspace, study):
    return subprocess.run(
        [sys.executable, "scripts/servelab_command.py", "report", study],
        cwd=workspace.folder,
        env=workspace.environment(),
        capture_output=True,
        text=True,
        check=True,
    ).stdout


@pytest.mark.slow
def test_damaged_weights_are_not_recommended(asked):
    recommended = asked.json(f"{STUDY}/recommended.json")
    assert recommended["configuration"]["model"] == "base"
    table = pd.read_parquet(asked.folder / STUDY / "stages/weights/table.parquet").set_index("candidate")
    assert table.loc["damaged", "answers"] == "changes answers"
    assert recommended["answers"]["asked"] == QUESTIONS and recommended["answers"]["baseline_right"] > 4
    decision = asked.json(f"{STUDY}/stages/weights/decision.json")
    verdict = next(each for each in decision["candidates"] if each["candidate"] == "damaged")
    assert verdict["verdict"] == "changes answers" and "more is lost than is allowed" in verdict["why"]
    first = "\n".join(shown_recommendation(asked, STUDY).splitlines()[:5])
    assert "Answers: " in first
    if verdict["change_percent"] > 0:  # it does as much work, and another process may have slowed it
        assert "damaged changes answers" in first
