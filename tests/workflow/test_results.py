"""The figures of a finished study, each recomputed from the raw records, not by the code that wrote it."""

import json
import re
import shlex
import subprocess

import httpx
import numpy as np
import pandas as pd
import pytest
from servelab_command import run_servelab
from workspace import Workspace


@pytest.fixture(scope="module")
def study(finished):
    return finished.folder / "results/studies/tiny"


@pytest.fixture(scope="module")
def records(finished):
    runs = finished.folder / "results/runs"
    return {folder.name: pd.read_parquet(folder / "requests.parquet") for folder in runs.iterdir()}


RATES = {
    "requests_per_s": len,
    "output_tokens_per_s": lambda rows: rows["output_tokens"].sum(),
    "input_tokens_per_s": lambda rows: rows["input_tokens"].sum(),
    "total_tokens_per_s": lambda rows: rows["output_tokens"].sum() + rows["input_tokens"].sum(),
    "concurrency": lambda rows: (rows["last_token_s"] - rows["sent_s"]).sum(),
}
LATENCIES = {
    "ttft_ms": lambda rows: (rows["first_token_s"] - rows["sent_s"]) * 1e3,
    "tpot_ms": lambda rows: (rows["last_token_s"] - rows["first_token_s"]) * 1e3 / (rows["output_tokens"] - 1),
    "e2el_ms": lambda rows: (rows["last_token_s"] - rows["sent_s"]) * 1e3,
    "itl_ms": lambda rows: pd.Series(np.concatenate(list(rows["chunk_gaps_ms"]))),
    "itl_token_ms": lambda rows: LATENCIES["tpot_ms"](rows).repeat(rows["output_tokens"].astype(int) - 1),
    "normalized_e2el_ms": lambda rows: (rows["last_token_s"] - rows["sent_s"]) * 1e3 / rows["output_tokens"],
}


def test_every_run_has_its_row_for_every_metric(study, finished):
    metrics = pd.read_parquet(study / "metrics.parquet")
    ok = [run for run in finished.runs() if finished.json(f"results/runs/{run}/status.json")["outcome"] == "ok"]
    assert set(metrics["run_id"]) == set(ok)
    assert len(ok) == 6
    assert set(RATES) | set(LATENCIES) <= set(metrics["metric"])
    assert metrics["definition"].isna().all()


@pytest.mark.parametrize("metric", LATENCIES)
def test_latencies_are_those_of_the_records(metric, study, records):
    rows = pd.read_parquet(study / "metrics.parquet").query("metric == @metric")
    for _, row in rows.iterrows():
        frame = records[row["run_id"]]
        values = LATENCIES[metric](frame[frame["error"].isna()])
        assert row["n"] == len(values)
        for statistic, expected in {
            "mean": values.mean(),
            "std": values.std(ddof=0),
            "median": values.median(),
            "p90": values.quantile(0.90),
            "p95": values.quantile(0.95),
            "p99": values.quantile(0.99),
            "minimum": values.min(),
            "maximum": values.max(),
        }.items():
            assert row[statistic] == pytest.approx(expected, rel=1e-6), statistic


def starts_that_count(row):
    """The runs of a row of a stage table, without the disturbed ones if there are others."""
    undisturbed = [run for run, delay in zip(row["run_ids"], row["start_delays_percent"], strict=True) if delay == 0]
    return undisturbed or list(row["run_ids"])


def test_the_stage_table_has_the_means_of_the_metrics_over_server_starts(study):
    metrics = pd.read_parquet(study / "metrics.parquet").set_index(["run_id", "metric"])
    table = pd.read_parquet(study / "stages/sequences/table.parquet")
    for _, row in table[table["outcome"] == "ok"].iterrows():
        counted = starts_that_count(row)
        assert len(counted) == row["starts"] or any(row["start_delays_percent"])
        for column, (metric, statistic) in {
            "total_tokens_per_s": ("total_tokens_per_s", "mean"),
            "ttft_ms_p99": ("ttft_ms", "p99"),
            "tpot_ms_mean": ("tpot_ms", "mean"),
        }.items():
            values = [metrics.loc[(run, metric), statistic] for run in counted]
            assert row[column] == pytest.approx(np.mean(values), rel=1e-9)


def test_percentages_follow_from_their_two_figures(study):
    improvements = pd.read_parquet(study / "improvements.parquet")
    assert len(improvements) > 0
    metrics = pd.read_parquet(study / "metrics.parquet").set_index(["run_id", "metric"])["mean"]
    tables = pd.concat(pd.read_parquet(file) for file in study.glob("stages/*/table.parquet"))
    starts = {row["run_id"]: starts_that_count(row) for _, row in tables[tables["outcome"] == "ok"].iterrows()}
    rates_only = improvements[improvements["metric"].isin(RATES)]
    for _, row in rates_only.iterrows():
        base, value = (
            np.mean([metrics[(run, row["metric"])] for run in starts[row[side]]])
            for side in ("baseline_run_id", "run_id")
        )
        assert row["change_percent"] == pytest.approx(100 * (value / base - 1))
        assert row["evidence"] == "search" and np.isnan(row["change_ci95_low_percent"])  # nothing to prove


def test_a_failed_candidate_is_a_finding(finished, study):
    """The bad flag: told in the run, in the table, in the decision and in the report; the search went on."""
    row = pd.read_parquet(study / "stages/sequences/table.parquet").query("outcome == 'failed'").iloc[0]
    assert row["reason"] == "unsupported_argument"
    assert "--no-such-flag" in row["message"]
    status = finished.json(f"results/runs/{row['run_id']}/status.json")
    assert any("--no-such-flag" in line for line in status["log_lines"])
    decision = json.loads((study / "stages/sequences/decision.json").read_text())
    assert {entry["candidate"]: entry["verdict"] for entry in decision["candidates"]}["--no-such-flag"] == "failed"
    assert "unrecognized arguments" in (study / "report.html").read_text()


def test_dry_run_says_what_is_left_and_what_it_can_cost(tmp_path):
    fresh = Workspace.create(tmp_path / "fresh")
    assert re.search(
        r"tiny: \d+ server starts left if the winners stay \(0 runs measured\), about ", fresh.snakemake("-n")
    )


def test_a_wrong_study_stops_before_any_job(tmp_path):
    wrong = Workspace.create(tmp_path / "wrong")
    wrong.edit("config/studies/tiny.yaml", "objective:", "objectiv:")
    said = wrong.snakemake(check=False)
    line = next(line for line in said.splitlines() if "objectiv" in line)
    assert "config/studies/tiny.yaml: objectiv: unknown key `objectiv`; did you mean `objective`?" in line
    assert "rule " not in said
    assert not (wrong.folder / "results/studies").exists()


def test_recommendation_is_printed_with_its_command(finished):
    done = run_servelab("report", "results/studies/tiny", cwd=finished.folder)
    assert done.returncode == 0, done.stderr
    assert f"    {finished.json('results/studies/tiny/recommended.json')['launch_command']}\n" in done.stdout
    assert "llama-server --model SmolLM2" not in done.stdout  # no engine finds these weights by that name
    assert "Keep the baseline: the search found no candidate that is better" in done.stdout
    assert "results/studies/tiny/report.html" in done.stdout


def test_the_recommended_command_serves(finished):
    """The report's first command, run again as it is printed: it becomes healthy and answers."""
    recommended = finished.json("results/studies/tiny/recommended.json")
    report = (finished.folder / "results/studies/tiny/report.md").read_text()
    printed = report.partition("```bash\n")[2].partition("\n```")[0]
    assert printed == recommended["launch_command"]
    command = shlex.split(printed)
    address = f"http://127.0.0.1:{command[command.index('--port') + 1]}"
    with subprocess.Popen(command, cwd=finished.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            transport = httpx.HTTPTransport(retries=20)  # until it listens
            with httpx.Client(base_url=address, transport=transport, timeout=60) as client:
                body = {"model": recommended["model"], "prompt": "One, two,", "max_tokens": 4}
                while client.get("/health").status_code != 200:
                    assert server.poll() is None
                answer = client.post("/v1/completions", json=body).json()
            assert answer["usage"]["completion_tokens"] == 4
        finally:
            server.kill()
