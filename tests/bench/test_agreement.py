"""Ours and `vllm bench serve` on real servers, the same requests: do they agree on the total token throughput?"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd
import pytest
from engines.conftest import Installed, install
from harness import CPUS, REPEATS, Run, publish, run_client, undisturbed
from real_servers import plan_for, request_file

from servelab.measure.server import Server
from servelab.metrics.definitions import METRICS, Round
from servelab.metrics.statistics import ratio_ci95
from servelab.metrics.tables.io import record_array

OURS, OTHER = "servelab", "vllm-bench"
CONCURRENCY = 4
REQUESTS = 64
"""Enough for a quarter of a minute: what disturbs for a second then moves a figure by little."""
OPTIONS = {"context_length": 1024, "max_num_seqs": CONCURRENCY, "threads": 1}
"""One thread: llama.cpp's fall many times behind when a client takes one of their two CPUs."""
MOST_PERCENT = 3.0
"""Where repeats are so alike that even a tiny difference lies beyond their noise, it may be so much."""
MOST_NOISE_PERCENT = 15.0
"""Half the width of an interval that still says something."""


def _figures(run: Run) -> dict[str, float]:
    throughput = METRICS.get("total_tokens_per_s").observe(Round(record_array(run.records)))
    return {"total_tokens_per_s": float(throughput[0]), "output tokens": run.tokens}


def _alternate(
    installed: Installed, server: Server, pythons: dict[str, Path], requests: Path, in_flight: int, folder: Path
) -> pd.DataFrame:
    """A row for each run: both clients in turns, on a server that is up."""
    plan = plan_for(installed, server, requests, max_concurrency=in_flight)
    rows = []
    run_client(OURS, pythons[OURS], plan, folder / "warmup", CPUS)
    for repeat in range(REPEATS):
        with undisturbed():
            for name in (OURS, OTHER) if repeat % 2 else (OTHER, OURS):
                # Where a server's last event has choices and usage in one, as llama.cpp's has, vllm bench does
                # not see the usage and counts the text's tokens, which can differ by one or two.
                run = run_client(name, pythons[name], plan, folder / f"{name}-{repeat}", CPUS, tolerate="output_length")
                rows.append({"in flight": in_flight, "repeat": repeat, "client": name, **_figures(run)})
    return pd.DataFrame(rows)


def _compare(runs: pd.DataFrame) -> dict[str, float | bool]:
    """Ours against the other's, with the interval of the difference."""
    of = {name: list(own.total_tokens_per_s) for name, own in runs.groupby("client")}
    difference = ratio_ci95(of[OTHER], of[OURS])
    assert difference.low is not None
    assert difference.high is not None
    return {
        OTHER: sum(of[OTHER]) / REPEATS,
        OURS: sum(of[OURS]) / REPEATS,
        "difference (%)": difference.value,
        "low (%)": difference.low,
        "high (%)": difference.high,
        "within the noise of repeats": difference.low <= 0 <= difference.high,
        f"below {MOST_PERCENT:g} %": abs(difference.value) < MOST_PERCENT,
    }


def _check(found: dict) -> None:
    noise = (found["high (%)"] - found["low (%)"]) / 2
    assert noise < MOST_NOISE_PERCENT, f"± {noise:.0f} %: the machine is too busy to compare anything"
    assert found["within the noise of repeats"] or found[f"below {MOST_PERCENT:g} %"], found


@pytest.mark.bench
@pytest.mark.parametrize("engine", ["llama.cpp", "vllm"])
def test_agreement(engine, other_clients, tmp_path):
    installed = install(engine)
    pythons = {OURS: Path(sys.executable), OTHER: other_clients[OTHER]}
    requests = request_file(tmp_path / "requests.parquet", count=REQUESTS, words=32, output_tokens=32)
    server = installed.server(tmp_path / "server.log", options=OPTIONS)
    server.start()
    try:
        runs = _alternate(installed, server, pythons, requests, CONCURRENCY, tmp_path)
    finally:
        server.stop()
    found = _compare(runs)
    publish(
        f"agreement-{engine}",
        f"Total tokens per second of the same requests on {engine}, by two clients",
        {"Difference of ours from vllm bench serve": pd.DataFrame([{"engine": engine, **found}]), "Runs": runs},
    )
    _check(found)
