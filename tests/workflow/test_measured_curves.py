"""Curves on real servers: a visit serves every point, a point more is a run more, and saturation ends a curve."""

import pandas as pd
import pytest
from workspace import ROOT, WORKLOADS, Workspace, tiny_study, yaml

POINTS = [1, 2, 4]
FLOOD = [2000, 4000, 8000]
"""Requests per second that no llama.cpp on a CPU can serve: the first of these saturates it."""
CURVES = "results/studies/tiny/curves.parquet"


def curve_study(points):
    """Two configurations; nothing passes the margin, so there is nothing to prove."""
    study = tiny_study()
    study["stages"] = [{"name": "sequences", "candidates": [{"options": {"max_num_seqs": 2}}]}]
    study["search"] |= {"recheck": False, "incumbent_starts": 1}
    study["workloads"] = [
        {"name": "tiny", "load": {"max_concurrency": points}},
        {"name": "flood", "workload": "tiny", "num_requests": 32, "load": {"request_rate": FLOOD}},
    ]
    study["objective"]["on"] = "tiny-c2"
    return study


def of_runs(workspace):
    return [
        (workspace.json(f"results/runs/{run}/spec.json"), workspace.json(f"results/runs/{run}/status.json"))
        for run in workspace.runs()
    ]


@pytest.mark.slow
def test_points_of_a_real_server(tmp_path):
    workspace = Workspace.create(tmp_path / "project")
    workspace.write_study(curve_study(POINTS))
    workspace.snakemake(CURVES, "results/studies/tiny/report.md")
    jobs = {}
    for spec, status in of_runs(workspace):
        jobs.setdefault((spec["protocol"]["request_rate"] == "inf", status["job_id"]), []).append((spec, status))
    visits = [each for (is_closed, _), each in jobs.items() if is_closed]
    assert len(visits) == 2  # of the baseline, and of the candidate
    for runs in visits:
        assert sorted(spec["protocol"]["max_concurrency"] for spec, _ in runs) == POINTS
        assert len({spec["start"] for spec, _ in runs}) == 1
    (flooded,) = [each for (is_closed, _), each in jobs.items() if not is_closed]
    outcomes = {spec["protocol"]["request_rate"]: status["outcome"] for spec, status in flooded}
    assert outcomes == {2000: "ok", 4000: "saturated", 8000: "saturated"}

    curves = pd.read_parquet(workspace.folder / CURVES)
    tiny = curves[curves["curve"] == "tiny"]
    assert sorted(tiny["level"]) == sorted(POINTS * 2)
    assert (tiny["total_tokens_per_s"] > 0).all() and (tiny["ttft_ms_mean"] > 0).all()
    assert list(curves[curves["decides"]]["workload"].unique()) == ["tiny-c2"]
    assert list(curves[curves["curve"] == "flood"]["outcome"]) == ["ok", "saturated", "saturated"]
    report = (workspace.folder / "results/studies/tiny/report.html").read_text()
    assert '<section id="curves">' in report and "saturated at a lower rate: not sent" in report
    assert (workspace.folder / "results/studies/tiny/charts/curves.svg").exists()

    workspace.write_study(curve_study([*POINTS, 3]))
    added = workspace.measured_by(CURVES)
    statuses = [workspace.json(f"results/runs/{run}/status.json") for run in added]
    assert len(added) == len({status["job_id"] for status in statuses}) == 2  # one on a server start of each


SHORT = {
    "title": "Short",
    "kind": "random",
    "parameters": {"input_tokens": 16, "output_tokens": 4, "num_requests": 16, "seed": 1},
}
LEVELS = [1, 2, 4, 8, 16]
SLOS = {"ttft_ms": {"p90": 300}, "tpot_ms": {"mean": 200}}
CAPACITY = {"of": "max_concurrency", "highest": 64, "slos": SLOS, "within_percent": 50}


def vllm_study():
    """Three configurations of vLLM at five loads, and the most users within two limits; nothing passes the margin."""
    study = tiny_study()
    of_two = yaml.safe_load((ROOT / "config/studies/cpu-engines.yaml").read_text().replace("on: cpu-", "'on': cpu-"))
    study["engines"] = {"vllm": of_two["engines"]["vllm"]}
    arguments = {"enforce-eager": None, "kv-cache-memory-bytes": 1 << 30}
    study["baseline"] = {"engine": "vllm", "arguments": arguments, "options": {"context_length": 512}}
    changes = [{"max_num_seqs": 2}, {"max_num_batched_tokens": 64}]
    study["stages"] = [{"name": "batch", "candidates": [{"options": change} for change in changes]}]
    study["search"] |= {"recheck": False, "incumbent_starts": 1}
    study["protocol"] |= {"startup_timeout_s": 300}
    study["workloads"] = [
        {"name": "users", "workload": "short", "load": {"max_concurrency": LEVELS}},
        {"name": "limit", "workload": "short", "load": {"capacity": CAPACITY}},
    ]
    study["objective"]["on"] = "users-c16"
    return study


@pytest.mark.slow
def test_curves_a_capacity_and_a_map_of_vllm(tmp_path):
    workspace = Workspace.create(tmp_path / "project")
    workspace.write("config/workloads.yaml", yaml.safe_dump({**WORKLOADS, "short": SHORT}, sort_keys=False))
    workspace.write_study(vllm_study())
    workspace.snakemake(CURVES, "results/studies/tiny/report.md")
    jobs = {}
    for spec, status in of_runs(workspace):
        jobs.setdefault(status["job_id"], []).append((spec, status))
    searched = [runs for runs in jobs.values() if all("capacity" not in spec for spec, _ in runs)]
    assert len(searched) == 3 and {len(runs) for runs in searched} == {len(LEVELS)}
    assert {status["server_starts"] for runs in jobs.values() for _, status in runs} == {1}
    # the search measures the curve that decides, the answer every workload
    ((limit,),) = [runs for runs in jobs.values() if runs not in searched]
    spec, status = limit
    assert (status["outcome"], spec["capacity"]["slos"]) == ("ok", SLOS)
    assert len(status["steps"]) > 1 and status["steps"][0]["missed"] is None
    curves = pd.read_parquet(workspace.folder / CURVES)
    assert sorted(curves["level"]) == sorted(LEVELS * 3) and set(curves["outcome"]) == {"ok"}
    (found,) = workspace.json("results/studies/tiny/recommended.json")["winner_maps"]
    assert [each["load"] for each in found["explored"]] == LEVELS and not found["ranges"]
