"""10,000 logs into one Parquet table: time and peak memory a log, beside `pandas.read_json` of the same figures."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from harness import ROOT, publish

from servelab.recorded.readers import read_file

LOGS = 10_000

OURS = """
import resource, sys, time
from pathlib import Path
from servelab.recorded.readers.blocks_table import write_table
logs = sorted(Path(sys.argv[1]).iterdir())
before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
errors = write_table(logs, Path(sys.argv[2]))
cpu_s, after = time.process_time() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(len(errors), cpu_s, (after - before) * 1024)
"""
PANDAS = """
import resource, sys, time
from pathlib import Path
import pandas as pd
logs = sorted(Path(sys.argv[1]).iterdir())
before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
pd.concat([pd.read_json(log) for log in logs]).to_parquet(sys.argv[2])
cpu_s, after = time.process_time() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(0, cpu_s, (after - before) * 1024)
"""


def run(program: str, logs: Path, table: Path) -> tuple[int, float, float]:
    command = [sys.executable, "-c", program, str(logs), str(table)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env={"PYTHONPATH": str(ROOT / "scripts")}
    )
    errors, cpu_s, grown_bytes = done.stdout.split()
    return int(errors), float(cpu_s), float(grown_bytes)


@pytest.mark.bench
def test_ten_thousand_logs(tmp_path: Path) -> None:
    texts, figures = tmp_path / "logs", tmp_path / "figures"
    texts.mkdir()
    figures.mkdir()
    real = sorted((ROOT / "config/recorded").glob("*/logs/*.txt"))
    blocks = [read_file(log) for log in real]
    for number in range(LOGS):
        log = real[number % len(real)]
        (texts / f"{number:05}.log").write_bytes(log.read_bytes())
        rows = [
            {"file": log.name, **figure._asdict()} for block in blocks[number % len(real)] for figure in block.figures
        ]
        (figures / f"{number:05}.json").write_text(json.dumps(rows))
    ours = run(OURS, texts, tmp_path / "ours.parquet")
    theirs = run(PANDAS, figures, tmp_path / "theirs.parquet")
    names = ["errors", "cpu_s", "grown_bytes"]
    table = pd.DataFrame([ours, theirs], columns=names, index=["read_log", "pandas.read_json"])
    table["cpu_ms_per_log"] = 1000 * table.cpu_s / LOGS
    table["kb_per_log"] = table.grown_bytes / LOGS / 1000
    table["time_ratio"] = table.cpu_s / theirs[1]
    table["memory_ratio"] = table.grown_bytes / theirs[2]
    publish("readers", "Reading logs", {f"{LOGS} logs": table.reset_index(names="reader")})
    assert ours[0] == 0
    rows = pd.read_parquet(tmp_path / "ours.parquet", columns=["file", "metric", "statistic", "value"])
    expected = pd.read_parquet(tmp_path / "theirs.parquet", columns=["metric", "statistic", "value"])
    assert rows.file.nunique() == LOGS
    for column in ("metric", "statistic"):
        assert rows[column].tolist() == expected[column].tolist()
    assert np.allclose(rows.value, expected.value, rtol=1e-12, equal_nan=True)
