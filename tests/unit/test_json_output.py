"""`--json` of commands: an object a line with the keys of docs/reference/json.md, and valid by its JSON Schema."""

import json
from pathlib import Path

import check_studies
import jsonschema
import pytest
import sample_study
import show_recommendation
import status
from test_compare import make_side, project_of  # noqa: F401 (fixtures)

from servelab.cli import launch
from servelab.report.compare.comparison_table import compare_studies
from servelab.report.compare.conditions import read_condition, try_conditions
from servelab.report.json_output import OUTPUTS, compare_output, json_schema, print_line

ROOT = Path(__file__).parents[2]


@pytest.fixture
def printed(capsys):
    def lines(command):
        found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        model = OUTPUTS[command]
        assert found and all(list(each) == list(model.model_fields) for each in found)
        for each in found:
            jsonschema.validate(each, json_schema() | {"$ref": f"#/$defs/{model.__name__}"})
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


def test_tune_read_and_explain(printed, monkeypatch, tmp_path):
    monkeypatch.chdir(ROOT)
    typed = ["--hardware", "NVIDIA H100", "--per-node", "8", "--", "vllm", "serve", "Qwen/Qwen3-32B", "-tp", "2"]
    launch.servelab(["tune", "mine", "--json", *typed])
    (begun,) = printed("tune")
    assert begun["candidates"] and begun["study"]["study"] == "mine" and not Path("config/studies/mine.yaml").exists()
    launch.servelab(["read", str(next(Path("config/recorded/qwen3-32b-h100/logs").glob("*"))), "--json"])
    assert printed("read")[0]["figures"]["total_tokens_per_s"]
    (tmp_path / "log").write_text("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 14.50 GiB.\n")
    launch.servelab(["explain", "--engine", "vllm", "--json", str(tmp_path / "log")])
    assert printed("explain")[0]["reason"] == "out_of_memory"


def test_compare(printed, make_side):  # noqa: F811
    comparison = compare_studies(make_side("a"), make_side("b", pace=0.7, day=2))
    findings = try_conditions(comparison, [read_condition("total_tokens_per_s < -3%")], answers=True)
    print_line(compare_output(comparison, findings))
    (said,) = printed("compare")
    assert said["verdict"] == "worse" and said["conditions"][0]["condition"] == "total_tokens_per_s < -3%"
    assert {row["verdict"] for row in said["pairs"]} == {"worse"}
