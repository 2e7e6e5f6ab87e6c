"""10,000 logs into one Parquet table through the command line, beside `pandas.read_json` of the same figures."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from harness import ROOT, publish

from servelab.recorded.readers import read_file

LOGS = 10_000

PANDAS = """
import sys
from pathlib import Path
import pandas as pd
pd.concat([pd.read_json(log) for log in sorted(Path(sys.argv[1]).iterdir())]).to_parquet(sys.argv[2])
"""
ROUNDS = 3
"""Each is timed so often, in turn."""


def seconds(*command: str) -> tuple[float, float]:
    """Wall time and CPU time of a command, its children included."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, *command], check=True, env={"PYTHONPATH": str(ROOT / "scripts")})
    wall_s, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall_s, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


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
    commands = {
        "read_log.py": [str(ROOT / "scripts/read_log.py"), "--table", str(tmp_path / "ours.parquet"), str(texts)],
        "pandas.read_json": ["-c", PANDAS, str(figures), str(tmp_path / "theirs.parquet")],
    }
    times = [(name, *seconds(*command)) for _ in range(ROUNDS) for name, command in commands.items()]
    table = pd.DataFrame(times, columns=["reader", "wall_s", "cpu_s"]).groupby("reader", as_index=False).median()
    theirs = table.set_index("reader").loc["pandas.read_json"]
    table["times_as_fast"] = theirs.wall_s / table.wall_s
    table["cpu_ratio"] = table.cpu_s / theirs.cpu_s
    publish("readers", "Reading logs", {f"{LOGS} logs": table})
    rows = pd.read_parquet(tmp_path / "ours.parquet", columns=["file", "metric", "statistic", "value"])
    expected = pd.read_parquet(tmp_path / "theirs.parquet", columns=["metric", "statistic", "value"])
    assert rows.file.nunique() == LOGS
    for column in ("metric", "statistic"):
        assert rows[column].tolist() == expected[column].tolist()
    assert np.allclose(rows.value, expected.value, rtol=1e-12, equal_nan=True)
