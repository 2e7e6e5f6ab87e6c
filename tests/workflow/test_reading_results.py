"""docs/results.md on the results of a real study: every block runs, and its figures are those of the tables."""

import json
import re
import subprocess
import sys

import pandas as pd
import pytest
from workspace import ROOT

PAGE = (ROOT / "docs/results.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
CHECKS = """
import json as _json
_found = {
    "ttft_p99_ms": float(ttft_p99_ms),
    "run_id": recommended["run_id"],
    "gains": len(gains),
    "best": best.fetchall(),
    "answers": answers.fetchall(),
}
print("FOUND " + _json.dumps(_found))
"""


def printed(workspace, script):
    """What Python code prints in the project's folder, which must end well."""
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=workspace.folder,
        env=workspace.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def found(finished):
    """What the blocks, run one after another in the project's folder, have computed."""
    script = "\n".join(BLOCKS).replace("cpu-smollm2", "tiny") + CHECKS
    return json.loads(printed(finished, script).split("FOUND ")[1])


def test_percentiles_of_the_records_are_those_of_the_tables(finished, found):
    metrics = pd.read_parquet(finished.folder / "results/studies/tiny/metrics.parquet")
    ttft = metrics[metrics["metric"] == "ttft_ms"].drop_duplicates("run_id").set_index("run_id")["p99"]
    assert found["ttft_p99_ms"] == pytest.approx(ttft[found["run_id"]], rel=1e-6)


def test_joins_and_queries_find_every_row(finished, found):
    improvements = pd.read_parquet(finished.folder / "results/studies/tiny/improvements.parquet")
    rows = improvements.query("basis == 'deployment' and metric == 'total_tokens_per_s'")
    assert found["gains"] == len(rows) > 0
    assert len(found["best"]) == min(10, len(rows))
    assert [row[0] for row in found["answers"]] == ["tiny"]
