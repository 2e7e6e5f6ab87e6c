"""Accelerator time of a study of two workloads whose server takes ten minutes to start, in made time.

Beside it the same study where each run starts a server of its own, as it was before a start served all that is missing.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import yaml

from servelab.core.yaml_file import read_yaml
from servelab.search.project import load_project
from servelab.search.simulate import Measured, simulate_project
from servelab.study.configuration import key_of

pytestmark = pytest.mark.bench

ROOT = Path(__file__).parents[2]
START_UP_S = 600.0
LOADS_S = {"short": 60.0, "a page's": 400.0}
"""Seconds of load of one workload on one start."""


@pytest.mark.parametrize("load", sorted(LOADS_S))
def test_a_start_serves_both_workloads(load, tmp_path, capsys):
    content = read_yaml(ROOT / "config/studies/cpu-smollm2.yaml")
    content |= {"study": "made", "proof": {}, "workloads": ["cpu-sharegpt", "cpu-generation"]}
    content["protocol"]["rounds"] = 2
    (tmp_path / "made.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    draw, started, seconds = np.random.default_rng(1), set(), {"start-up": 0.0, "load": 0.0, "runs": 0.0}

    def measure(configuration, load_of_run, start):
        seconds["runs"] += 1
        server = key_of(configuration), start
        if server not in started:
            started.add(server)
            seconds["start-up"] += START_UP_S
        seconds["load"] += LOADS_S[load] / load_of_run.divisor
        value = 100 * (1.5 if "q4" in configuration.model else 1.0) * np.exp(draw.normal(0, 0.02))
        return Measured([float(value)])

    found = simulate_project(load_project(tmp_path / "made.yaml", ROOT), measure)
    now = seconds["start-up"] + seconds["load"]
    before = seconds["runs"] * START_UP_S + seconds["load"]
    with capsys.disabled():
        print(
            f"\n{LOADS_S[load]:.0f} s of load: {found.runs} runs on {len(started)} starts, {now / 3600:.2f} h, "
            f"{100 * seconds['load'] / now:.0f} % under load; a start for each run: {before / 3600:.2f} h, "
            f"{100 * seconds['load'] / before:.0f} %"
        )
    assert found.runs == seconds["runs"] > len(started)
    assert now < 0.85 * before
