"""Figures of parsed runs are kept: what is parsed again after a change is counted, and the tables stay the same."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import made_run
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from made_results import write_run

from servelab.core.errors import ServelabError
from servelab.results.kept_figures import KeptFigures
from servelab.results.parse import TABLES, parse_plan
from servelab.search.planning import plan_stage
from servelab.study.configuration import baseline
from servelab.study.plan import Plan
from servelab.study.study import Study

SCRIPTS = Path(__file__).parents[2] / "scripts"
MANY = 40


@pytest.fixture
def stage_of(study_content, make_project, tmp_path):
    """Makes a study, the plan of its stage of so many candidates, and the folders of the runs, all copies of one."""

    def make(candidates: int, **objective):
        stage = {"name": "many", "candidates": [{"arguments": {"--seed": number}} for number in range(candidates - 1)]}
        content = study_content | {"stages": [stage], "objective": study_content["objective"] | objective}
        content["search"] = {"strategy": "staged", "incumbent_starts": 1}
        project = make_project(content)
        plan, runs = plan_stage(project, "many", baseline(project.study)), tmp_path / "runs"
        made = next(runs.iterdir(), None) if runs.exists() else None
        for run in (run for candidate in plan.candidates for run in candidate.runs):
            if made is None:
                made = write_run(runs, run.spec)
            elif not (runs / run.run_id).exists():
                shutil.copytree(made, runs / run.run_id)
        (tmp_path / "plan.json").write_text(plan.model_dump_json())
        return project.study, plan, runs

    return make


@pytest.fixture
def count(tmp_path, capsys):
    """Parses a stage with kept figures, compares with a parse without them, and returns how many runs were parsed."""

    def parse(study: Study, plan: Plan, runs: Path) -> int:
        capsys.readouterr()
        tables = parse_plan(study, plan, runs, KeptFigures.of(study, tmp_path / "parsed"))
        parsed = int(re.match("([0-9,]+) of", capsys.readouterr().out)[1].replace(",", ""))
        assert tables == parse_plan(study, plan, runs)
        return parsed

    return parse


def test_one_candidate_more_parses_one_run(stage_of, count):
    assert count(*stage_of(MANY)) == MANY
    assert count(*stage_of(MANY)) == 0
    assert count(*stage_of(MANY + 1)) == 1


def test_a_new_objective_parses_again_and_an_old_margin_does_not(stage_of, count):
    assert count(*stage_of(3)) == 3
    assert count(*stage_of(3, margin_percent=7)) == 0
    assert count(*stage_of(3, slos={"ttft_ms": 80})) == 3
    limited = {"constraints": {"ttft_ms": {"p90": 80}}}
    assert count(*stage_of(3, **limited)) == 3
    assert count(*stage_of(3, **limited)) == 0
    assert count(*stage_of(3)) == 3


@pytest.mark.parametrize(
    "content",
    [
        "",
        "no",
        "[]",
        '{"key": null}',
        '{"key": "KEY"}',
        '{"key": "KEY", "figures": 3}',
        '{"key": "KEY", "figures": {"metrics": [[1]]}}',
    ],
)
def test_a_damaged_file_is_made_again(stage_of, count, tmp_path, content):
    stage = stage_of(3)
    assert count(*stage) == 3
    file = sorted((tmp_path / "parsed").iterdir())[1]
    good = file.read_bytes()
    file.write_text(content.replace("KEY", json.loads(good)["key"]))
    assert count(*stage) == 1
    assert file.read_bytes() == good
    assert len(list((tmp_path / "parsed").iterdir())) == 3


@pytest.mark.parametrize("name", ["status.json", "requests.parquet", "telemetry.parquet"])
def test_a_replaced_run_is_parsed_again_though_size_and_time_are_the_same(stage_of, count, name):
    study, plan, runs = stage_of(3)
    assert count(study, plan, runs) == 3
    file = runs / plan.run_ids()[1] / name
    before = file.stat()
    if name == "status.json":
        file.write_text(file.read_text().replace('"server_starts": 1', '"server_starts": 9'))
    else:
        table = pq.read_table(file)
        position = table.schema.get_field_index("round")
        changed = pa.array([9 - number for number in table["round"].to_pylist()], pa.int32())
        pq.write_table(table.set_column(position, table.schema.field(position), changed), file)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(ServelabError, match=rf"{file.parent.name}: not a complete run \({name}: was changed\)"):
        count(study, plan, runs)
    made_run.seal(file.parent)
    assert count(study, plan, runs) == 1


def test_a_failed_run_is_kept_too(stage_of, count):
    study, plan, runs = stage_of(3)
    status = runs / plan.run_ids()[1] / "status.json"
    status.write_text(json.dumps(json.loads(status.read_text()) | {"outcome": "failed", "reason": "crashed"}))
    made_run.seal(status.parent)
    assert [count(study, plan, runs) for _ in range(2)] == [3, 0]


def test_changed_code_parses_every_run_again(stage_of, tmp_path):
    """The script in a copy of the code: as it is, again, and with a percentile that is another one."""
    study, _, runs = stage_of(3)
    copied = tmp_path / "scripts"
    shutil.copytree(SCRIPTS, copied, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "results").mkdir()
    runs.rename(tmp_path / "results/runs")
    files = {
        "input": {"study": f"{study.study}.yaml", "plan": "plan.json"},
        "output": {name: f"{name}.parquet" for name in TABLES},
    }
    command = [sys.executable, str(copied / "parse_stage.py"), f"files={json.dumps(files)}"]

    def parse() -> tuple[str, float]:
        environment = os.environ | {"PYTHONPATH": str(copied)}
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
        metrics = pq.read_table(tmp_path / "metrics.parquet").to_pandas()
        return done.stdout.split(" runs")[0], metrics.set_index("metric")["p99"]["ttft_ms"].iloc[0]

    first, second = parse(), parse()
    assert (first[0], second[0]) == ("3 of 3", "0 of 3") and first[1] == second[1]
    module = copied / "servelab/metrics/definitions/__init__.py"
    module.write_text(module.read_text().replace("[50, 90, 95, 99]", "[50, 90, 95, 50]"))
    third = parse()
    assert third[0] == "3 of 3" and third[1] < first[1]
