"""Sweeps in recorded studies: each point has the results at its load, whichever files they are in.

The results are one run of each tool (tests/data/readers), written at several loads in the form of the tool's sweep.
"""

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest
import yaml

from servelab.core.errors import ConfigError
from servelab.core.yaml_file import read_yaml
from servelab.metrics.tables import schemas
from servelab.recorded.log_tables import parse_recorded
from servelab.recorded.logs import Logs
from servelab.report.claims_section import RecordedLogs
from servelab.results.curves import curves_table
from servelab.search.candidates_table import describe
from servelab.search.decide import decide_stage
from servelab.search.recommend import recommend
from servelab.study.recorded.plan import plan_recorded
from servelab.study.recorded.study import load_recorded
from servelab.study.study import COMPARISON

ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "tests/data/readers"
LEVELS = {1: 1.0, 4: 3.0, 16: 5.0}
"""Most in flight → output tokens/s of the baseline; the other candidate gives twice as many."""


def vllm(level, times, of="max_concurrency"):
    """A result of `vllm bench serve --save-result` in which only load, time and what follows from it differ."""
    result = json.loads((SAMPLES / "vllm-0.32.json").read_text())
    result["duration"] = result["total_output_tokens"] / (times * LEVELS[level])
    result["output_throughput"] = result["total_output_tokens"] / result["duration"]
    tokens = result["total_output_tokens"] + result["total_input_tokens"]
    result["total_token_throughput"] = tokens / result["duration"]
    result["request_throughput"] = result["completed"] / result["duration"]
    others = {"max_concurrency": None, "request_rate": "inf"}
    return result | others | {of: level}


@pytest.fixture
def study(tmp_path):
    """Writes the example as a sweep with two candidates: files of each, the load, and further keys."""
    folder = shutil.copytree(ROOT / "config/recorded/example", tmp_path / "example")
    shutil.rmtree(folder / "logs")
    (folder / "logs").mkdir()

    def write(logs, load, on, prompts=6):
        content = read_yaml(ROOT / "config/recorded/example/study.yaml")
        content["workloads"] = {"sharegpt": {"title": "ShareGPT", "prompts": prompts, "load": load}}
        content["objective"] |= {"on": on, "metric": "output_tokens_per_s", "min_success_rate": 0.8}
        content["claims"] = []
        for candidate, files in zip(content["stages"][0]["candidates"], logs, strict=True):
            for name, text in files.items():
                (folder / "logs" / name).write_text(text)
            candidate["logs"] = {"sharegpt": list(files)}
        (folder / "study.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
        return load_recorded(folder), folder

    return write


def rates(found, folder):
    """Candidate and workload → output tokens/s, of the comparison of both."""
    plan = plan_recorded(found, folder, COMPARISON, "parallelism/fp8-tp4")
    rows = parse_recorded(found, plan, folder)["metrics"].to_pandas()
    rows = rows[rows["metric"] == "output_tokens_per_s"].set_index("run_id")["mean"]
    return {(each.candidate, run.workload): rows[run.run_id] for each in plan.candidates for run in each.runs}


def in_files(times):
    """A folder of `vllm bench sweep`: a file for each load."""
    return {f"x{times}-c{level}.json": json.dumps(vllm(level, times) | {"run_number": 0}) for level in LEVELS}


def in_one_list(times):
    """Its summary: a list of all results."""
    return {f"x{times}.json": json.dumps([vllm(level, times) for level in LEVELS])}


@pytest.mark.parametrize("written", [in_files, in_one_list])
def test_a_sweep_of_vllm(written, study):
    found, folder = study([written(1), written(2)], {"max_concurrency": [4, 1, 16]}, "sharegpt-c16")
    assert {name: each.max_concurrency for name, each in found.workloads.items()} == {
        "sharegpt-c1": 1,
        "sharegpt-c4": 4,
        "sharegpt-c16": 16,
    }
    assert found.workloads["sharegpt-c4"].title == "ShareGPT, 4 in flight"
    expected = {
        (side, f"sharegpt-c{level}"): pytest.approx(times * rate)
        for side, times in (("baseline", 1), ("winner", 2))
        for level, rate in LEVELS.items()
    }
    assert rates(found, folder) == expected
    assert not [
        block.unknown for block in Logs(found, folder).rounds("parallelism/tp8", "sharegpt-c4") if block.unknown
    ]


def aiperf(level, of, form):
    """A run's export; `form` says where its load is: in the sweep's point, in a phase, or as it was up to 0.2."""
    document = json.loads((SAMPLES / "aiperf-0.13.json").read_text())
    name = {"max_concurrency": "concurrency", "request_rate": "request_rate" if form == "old" else "rate"}[of]
    if form == "point":
        document["run_info"]["variation_values"] = {f"phases.profiling.{name}": level}
    if form == "old":
        document["input_config"] = {"loadgen": {name: level}}
    else:
        warmup = {"name": "warmup", name: 99}
        phase = {"name": "profiling", name: 77 if form == "point" else level}
        document["input_config"] = {"phases": [warmup, phase]}
    return json.dumps(document)


@pytest.mark.parametrize("form, of, letter", [("point", "max_concurrency", "c"), ("old", "request_rate", "r")])
def test_a_sweep_of_aiperf(of, letter, form, study):
    logs = [{f"{name}-{level}.json": aiperf(level, of, form) for level in (1, 4)} for name in ("base", "other")]
    found, folder = study(logs, {of: [1, 4]}, f"sharegpt-{letter}4")
    read = Logs(found, folder)
    for level in (1, 4):
        assert read.files("parallelism/tp8", f"sharegpt-{letter}{level}") == [f"base-{level}.json"]
        assert not read.broken("parallelism/tp8", f"sharegpt-{letter}{level}")


def test_each_point_names_its_own_files(study):
    found, folder = study([in_files(1), in_files(2)], {"max_concurrency": [1, 4]}, "sharegpt-c4")
    assert Logs(found, folder).files("parallelism/tp8", "sharegpt-c4") == ["x1-c4.json"]
    evidence = RecordedLogs(folder)
    plan = plan_recorded(found, folder, COMPARISON, "parallelism/fp8-tp4")
    run = next(run for run in plan.candidates[1].runs if run.workload == "sharegpt-c4")
    assert evidence.href(run.run_id) == "logs/x2-c4.json"


def test_prompts_of_each_point(study):
    found, _ = study([in_files(1), in_files(2)], {"max_concurrency": [1, 4]}, "sharegpt-c4", prompts=[6, 7])
    assert [each.prompts for each in found.workloads.values()] == [6, 7]
    for prompts, said in (
        ([6], "sharegpt.prompts has 1 numbers, and `load` 2 points"),
        ([6, 0], "sharegpt-c4.prompts"),
    ):
        with pytest.raises(ConfigError, match=said):
            study([in_files(1), in_files(2)], {"max_concurrency": [1, 4]}, "sharegpt-c4", prompts=prompts)


def made(found, folder):
    """Curves, and the answer with its map, of the example's stage and comparison."""
    plans, tables, points, decisions, incumbent = [], [], [], [], found.baseline
    for stage in found.stage_names:
        plans.append(plan_recorded(found, folder, stage, incumbent))
        parsed = parse_recorded(found, plans[-1], folder)
        tables.append(parsed["table"].to_pandas())
        points.append(parsed["points"].to_pandas())
        if stage != COMPARISON:
            decisions.append(decide_stage(found, plans[-1], tables[-1]))
            incumbent = plans[-1].reference_of(decisions[-1].winner.candidate)
    titles = {name: each.title for name, each in found.workloads.items()}
    summary = describe(found, titles)
    curves = curves_table(summary, pd.concat(tables), pd.concat(points)).to_pandas()
    assert list(curves.loc[curves["outcome"] != "ok", "workload"]) == [
        "sharegpt-c16"
    ]  # a crash, known where it decides
    none = schemas.IMPROVEMENTS.empty_table().to_pandas()
    answer = recommend(found, plans[-1], tables[-1], none, None, titles, decisions=decisions, curves=curves)
    return curves[curves["outcome"] == "ok"], answer


def planted(times_at):
    """Files of a candidate with half the accelerators that is so many times as fast at each load."""
    return {f"x{id(times_at)}-c{level}.json": json.dumps(vllm(level, times)) for level, times in times_at.items()}


def test_a_sweep_has_curves_and_a_map_without_intervals(study):
    found, folder = study(
        [in_files(1), planted({1: 0.25, 4: 0.45, 16: 1.0})], {"max_concurrency": [1, 4, 16]}, "sharegpt-c16"
    )
    curves, answer = made(found, folder)
    assert list(curves["level"]) == [1, 4, 16] * 2 and set(curves["curve"]) == {"sharegpt"}
    assert (
        list(zip(curves["stage"], curves["candidate"], strict=True))
        == [(COMPARISON, "baseline")] * 3 + [(COMPARISON, "winner")] * 3
    )
    assert list(curves["decides"]) == [False, False, True] * 2
    assert curves["output_tokens_per_s"].tolist() == pytest.approx([1.0, 3.0, 5.0, 0.25, 1.35, 5.0])
    assert curves["objective_ci95_low"].isna().all() and (curves["starts"] == 1).all()
    (map_,) = answer.winner_maps
    assert (map_.levels, map_.ranges, map_.crossings, map_.from_logs) == ([], [], [], True)
    assert [(each.load, each.candidates) for each in map_.explored] == [
        (1, ["baseline"]),
        (4, ["baseline"]),
        (16, ["winner"]),
    ]
    assert map_.text == (
        "Curve sharegpt, by Output tokens/s per node. By its logs alone (one run a point, so there is no interval) the "
        "best was baseline at 1 to 4 (suspect); winner at 16 (suspect) in flight."
    )
