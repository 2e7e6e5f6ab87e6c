"""`--json` of commands: an object a line with the keys of docs/reference/json.md."""

import json
from pathlib import Path

import check_studies
import pytest
import sample_study
import show_recommendation
import status
from pydantic import BaseModel
from test_compare import make_side, project_of  # noqa: F401 (fixtures)

from servelab.cli import launch
from servelab.report.compare.comparison_table import compare_studies
from servelab.report.compare.conditions import read_condition, try_conditions
from servelab.report.json_output import OUTPUTS, compare_output, print_line

ROOT = Path(__file__).parents[2]


@pytest.fixture
def printed(capsys):
    def lines(command):
        found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        model = OUTPUTS[command]
        assert isinstance(model, type) and issubclass(model, BaseModel)
        assert found and all(list(each) == list(model.model_fields) for each in found)
        return found

    return lines


def test_check_and_plan(printed, monkeypatch):
    monkeypatch.chdir(ROOT)
    launch.servelab(["plan", "qwen3-32b-h100", "--json"])
    (planned,) = printed("plan")
    assert planned["study"] == "qwen3-32b-h100" and planned["about"] > 0 and planned["stages"]
    monkeypatch.setattr(check_studies, "preflight", lambda project, results: [])
    launch.servelab(["check", "cpu-smollm2", "--json"])
    assert printed("check") == [{"study": "cpu-smollm2", "errors": 0, "findings": []}]


def test_report_and_status(printed, monkeypatch, tmp_path):
    sample_study.write(tmp_path / "results")
    arguments = ["--json", "--results", str(tmp_path / "results")]
    show_recommendation.main(show_recommendation.options().parse_args([sample_study.STUDY, *arguments]))
    (said,) = printed("report")
    assert said["kind"] == "win" and said["answer"].startswith("Use this command: 256 → 567")
    assert said["recommended"]["command"] == sample_study.COMMAND
    monkeypatch.chdir(ROOT)
    status.main(status.options().parse_args(["cpu-smollm2", "--json", "--results", str(tmp_path)]))
    (progress,) = printed("status")
    assert progress["running"] == [] and progress["stages"][0]["done"] == 0


def test_compare(printed, make_side):  # noqa: F811
    comparison = compare_studies(make_side("a"), make_side("b", pace=0.7, day=2))
    findings = try_conditions(comparison, [read_condition("total_tokens_per_s < -3%")], answers=True)
    print_line(compare_output(comparison, findings))
    (said,) = printed("compare")
    assert said["verdict"] == "worse" and said["conditions"][0]["condition"] == "total_tokens_per_s < -3%"
    assert {row["verdict"] for row in said["pairs"]} == {"worse"}
