"""A pair measured in A/B/B/A order on real servers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from servelab.deciding_pair import PairSpec, pair_id
from servelab.identity import run_id

ROOT = Path(__file__).parents[2]


def measure_pair(installed, requests, pair, output):
    """Runs the command line; its exit code and what it printed."""
    environment, model = str(installed.environment_json), str(installed.model_json)
    done = subprocess.run(
        [
            *(sys.executable, "scripts/measure_pair.py", "--pair", pair.model_dump_json()),
            *("--environment", environment, environment, "--model", model, model),
            *("--requests", str(requests), "--output", str(output)),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def planned(installed, **b):
    spec = installed.spec()
    return PairSpec(a=spec, b=spec.model_copy(update=b), cycles=1)


@pytest.fixture
def output(tmp_path):
    return lambda pair: tmp_path / "pairs" / pair_id(pair)


@pytest.mark.slow
def test_sides_alternate_and_each_is_a_run_of_its_own(installed, requests_path, output):
    pair = planned(installed, options={"context_length": 2048, "max_num_seqs": 2})
    folder = output(pair)
    code, said = measure_pair(installed, requests_path, pair, folder)
    assert code == 0, said
    assert [line.split(":")[0] for line in said.splitlines() if line.startswith("side ")] == [
        f"side {side}" for side in "abba"
    ]
    status = json.loads((folder / "status.json").read_text())
    assert (status["outcome"], status["order"]) == ("ok", "abba")
    for side, spec in (("a", pair.a), ("b", pair.b)):
        run = json.loads((folder / side / "status.json").read_text())
        assert (run["run_id"], run["outcome"], run["rounds"]) == (run_id(spec), "ok", 2)
        assert pq.read_table(folder / side / "requests.parquet")["round"].to_pylist() == [0] * 4 + [1] * 4
    flags = " ".join(installed.engine.flags({"max_num_seqs": 2}, {}))
    assert flags in (folder / "b/server.log").read_text()
    assert flags not in (folder / "a/server.log").read_text()


def test_a_side_that_fails_ends_the_pair(installed, requests_path, output):
    pair = planned(installed, arguments={"no-such-flag": None})
    folder = output(pair)
    code, said = measure_pair(installed, requests_path, pair, folder)
    assert code == 0, said
    status = json.loads((folder / "status.json").read_text())
    assert (status["outcome"], status["failed_side"]) == ("failed", "b")
    assert "no-such-flag" in status["message"]
    assert json.loads((folder / "a/status.json").read_text())["rounds"] == 1


def test_a_pair_goes_under_its_own_name_only(installed, requests_path, tmp_path):
    pair = planned(installed)
    code, said = measure_pair(installed, requests_path, pair, tmp_path / "pairs" / ("0" * 20))
    assert code == 2
    assert pair_id(pair) in said
