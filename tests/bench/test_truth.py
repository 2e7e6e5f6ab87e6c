"""How far a client's latencies are from what the server did: a stub that knows when each event left it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from harness import Records, publish, run_client, stub_plan, stub_server, undisturbed

from servelab.measure.clients import CLIENTS
from servelab.metrics.definitions import METRICS, Round
from servelab.metrics.tables.io import RecordArray, record_array

OURS = "servelab"
SCHEDULE = {"first_token_ms": 100, "first_token_spread_ms": 100, "gap_ms": 20, "gap_spread": 0.5}
TOKENS = 32
CONCURRENCIES = (1, 64, 500, 1000)
WAVES = 5
"""Requests of a run are so many times the concurrency; each wave in order of sending gives one error."""
METRIC_TAGS = ("ttft_ms", "tpot_ms", "itl_ms", "e2el_ms")
STATISTICS = {"median": 50, "p99": 99}
SINGLE_STREAM_WAVE = 4
"""Requests of a wave where one stream runs at a time."""


def errors(records: pa.Table, truth: pa.Table) -> dict[tuple[str, str], float]:
    """Median over the waves of |reported − true|, in ms, by metric and statistic."""
    seen: dict[tuple[str, str], list[float]] = {}
    waves = zip(_waves(records), _waves(truth), strict=True)
    for reported, true in waves:
        for tag in METRIC_TAGS:
            pair = [METRICS.get(tag).observe(Round(side)) for side in (reported, true)]
            for name, percent in STATISTICS.items():
                value, known = (float(np.percentile(side, percent)) if side.size else np.nan for side in pair)
                seen.setdefault((tag, name), []).append(abs(value - known))
    return {cell: float(np.median(values)) for cell, values in seen.items()}


def _waves(requests: pa.Table) -> list[RecordArray]:
    ordered = record_array(requests.sort_by("sent_s"))
    size = len(ordered) // WAVES
    return [ordered[wave * size : (wave + 1) * size] for wave in range(WAVES)]


def measure(concurrency: int, clients: dict[str, Path], folder: Path) -> pd.DataFrame:
    """A row for each metric and statistic: the truth's own value, and each client's error."""
    count = WAVES * max(concurrency, SINGLE_STREAM_WAVE)
    columns: dict[str, dict[tuple[str, str], float]] = {}
    with undisturbed():
        for name, python in clients.items():
            here = folder / f"{name}-{concurrency}"
            here.mkdir()
            with stub_server(here, SCHEDULE) as stub:
                plan = stub_plan(stub, here, count, TOKENS, max_concurrency=concurrency)
                run = run_client(name, python, plan, here / "client")
            assert isinstance(stub.records, Records)
            columns[name] = errors(run.records, pa.Table.from_pandas(stub.records.last(count)))
    rows = [
        {"concurrency": concurrency, "metric": tag, "statistic": statistic}
        | {f"{name} error (ms)": cells[tag, statistic] for name, cells in columns.items()}
        for tag in METRIC_TAGS
        for statistic in STATISTICS
    ]
    return pd.DataFrame(rows)


def verdict(row: pd.Series, others: list[str]) -> str:
    """`smallest`, or why it is not."""
    ours = row[f"{OURS} error (ms)"]
    better = [name for name in others if row[f"{name} error (ms)"] < ours]
    if not better:
        return "smallest"
    least = min(row[f"{name} error (ms)"] for name in better)
    if ours - least < RESOLUTION_MS:
        return f"equal to {', '.join(better)} within {RESOLUTION_MS} ms"
    return f"larger than that of {', '.join(better)}"


RESOLUTION_MS = 0.1
"""A stub in Python and a client on two CPUs: smaller differences change sign from run to run."""


@pytest.mark.bench
def test_truth(clients, tmp_path):
    others = [name for name in clients if name != OURS]
    table = pd.concat([measure(concurrency, clients, tmp_path) for concurrency in CONCURRENCIES], ignore_index=True)
    table["ours"] = [verdict(row, others) for _, row in table.iterrows()]
    differ = [
        {"client": name, "metric": tag, "how its definition differs": text}
        for name in others
        for tag, text in CLIENTS.get(name).definitions.items()
        if tag in METRIC_TAGS
    ]
    publish(
        "truth",
        "Error of latencies against what left the server",
        {"Errors": table, "Definitions": pd.DataFrame(differ)},
    )
    assert not table.ours.str.startswith("larger").any()
