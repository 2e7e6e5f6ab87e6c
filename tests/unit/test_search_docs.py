"""The examples of docs/search.md: the study's keys load, and the Python runs and gives what it says."""

import re

import pytest
import yaml
from made_study import ROOT

from servelab.search.strategies import stage_names
from servelab.study.study import PROOF_STAGES

TEXT = (ROOT / "docs/search.md").read_text()


def example(language):
    found = re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)
    assert len(found) == 1
    return found[0]


def test_the_studys_keys_are_those_of_a_study(study_content, make_project):
    shown = yaml.safe_load(example("yaml").replace("on: sharegpt", "'on': sharegpt"))
    assert set(shown) == {"search", "objective", "budget"}
    project = make_project(study_content | shown | {"workloads": ["sharegpt"]})
    first, *refined = stage_names(project.study)[: -len(PROOF_STAGES)]
    assert first == "design"
    assert all(name.startswith("refine-") for name in refined)
    assert project.study.budget.accelerator_hours == 8
    assert project.study.objective.constraints["ttft_ms"] == {"p99": 2000}


def test_the_python_gives_what_it_says(capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    code = example("python")
    exec(compile(code, "docs/search.md", "exec"), {})
    said = re.search(r"print\(.*\)  # (.*)", code)
    assert capsys.readouterr().out.strip() == said[1]


@pytest.mark.parametrize("metric", re.findall(r"`metric: (\w+)`", TEXT))
def test_objectives_are_metrics_with_a_direction(metric, study_content, make_project):
    study_content["objective"] |= {"metric": metric, "slos": {"ttft_ms": 500}}
    study_content["hardware"]["price_per_accelerator_hour"] = 2.0
    assert make_project(study_content).study.objective.metric == metric
