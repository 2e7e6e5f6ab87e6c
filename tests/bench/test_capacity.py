"""How many streamed tokens a second the client takes before it sends late."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from harness import CLIENT_CPUS, CPUS, Records, publish, run_client, stub_plan, stub_server, undisturbed

from servelab.metrics.definitions import METRICS, Round
from servelab.metrics.tables.io import record_array

LATE_MS = 10.0
"""A schedule delay whose 99th percentile is more says that the client cannot keep up."""
GAP_MS, TOKENS = 20.0, 64
RATES = (10_000, 20_000, 40_000, 60_000, 80_000, 100_000, 130_000, 160_000)
"""Tokens per second asked for; a step is taken only if the one before it was kept."""
STEP_S = 4.0
ATTEMPTS = 5
LEAST_GAIN = 1.6


def attempt(rate: int, processes: int, python: Path, folder: Path) -> dict[str, float]:
    """One load of about `rate` tokens per second: open-loop arrivals of streams paced at 20 ms."""
    folder.mkdir()
    arrivals_per_s = rate / TOKENS
    count = int(arrivals_per_s * STEP_S)
    with stub_server(folder, {"first_token_ms": 20, "gap_ms": GAP_MS}) as stub:
        pace = {"request_rate": arrivals_per_s, "arrivals": "constant"}
        plan = stub_plan(stub, folder, count, TOKENS, processes=processes, **pace)
        run = run_client("servelab", python, plan, folder / "client")
    assert isinstance(stub.records, Records)
    frame = run.records.to_pandas()
    delay = METRICS.get("schedule_delay_ms").observe(Round(record_array(run.records)))
    return {
        "tokens_per_s": run.tokens / (frame.last_token_s.max() - frame.first_token_s.min()),
        "schedule_delay_p99_ms": float(np.percentile(delay, 99)),
        "unread_p99_ms": float(frame.unread_ms.quantile(0.99)),
        "stub_late_p99_ms": float(np.percentile(stub.records.late_ms, 99)),
    }


def climb(processes: int, python: Path, folder: Path) -> pd.DataFrame:
    """Rows of rates, each the median of its attempts, up to the first that is not kept."""
    rows = []
    for rate in RATES:
        with undisturbed():
            tries = [attempt(rate, processes, python, folder / f"{processes}-{rate}-{n}") for n in range(ATTEMPTS)]
        row = {"processes": processes, "asked_tokens_per_s": rate, **pd.DataFrame(tries).median()}
        row["kept"] = row["schedule_delay_p99_ms"] <= LATE_MS
        row["stub kept"] = row["stub_late_p99_ms"] <= LATE_MS
        rows.append(row)
        if not row["kept"] or not row["stub kept"]:
            break
    return pd.DataFrame(rows)


def sustained(steps: pd.DataFrame) -> float:
    """Tokens per second of the last step that was kept."""
    kept = steps[steps.kept & steps["stub kept"]]
    return float(kept.tokens_per_s.max()) if len(kept) else 0.0


@pytest.mark.bench
def test_capacity(plain_clients, tmp_path):
    python = plain_clients["servelab"]
    steps = [climb(processes, python, tmp_path) for processes in (1, 2)]
    one, two = (sustained(of) for of in steps)
    bound = "client" if not steps[0].kept.all() else "stub" if not steps[0]["stub kept"].all() else "last step"
    summary = pd.DataFrame(
        [{"one process (tokens/s)": one, "two processes (tokens/s)": two, "ratio": two / one, "one is bound by": bound}]
    )
    publish(
        "capacity",
        f"Streamed tokens per second with a schedule delay of at most {LATE_MS:g} ms (p99)",
        {"Sustained": summary, "Steps": pd.concat(steps, ignore_index=True)},
    )
    assert one > 0
    if len(CLIENT_CPUS) < 2:
        pytest.skip(f"{len(CPUS)} CPUs: the stub has one, so two client processes share the other; nothing to gain")
    if bound != "client":
        pytest.skip(f"one process is bound by the {bound}, not by itself, so that a second can add nothing")
    assert two >= LEAST_GAIN * one
