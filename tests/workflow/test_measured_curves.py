"""Curves on real servers: a visit serves every point, a point more is a run more, and saturation ends a curve."""

import pandas as pd
import pytest
from workspace import Workspace, tiny_study

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
