"""Accelerator time of a study of two workloads whose server takes ten minutes to start, in made time.

Beside it the same study where each run starts a server of its own, as it was before a start served all that is missing.
And what share of a live study's accelerator time is under load, by the durations in the logs of the recorded one.
"""

from __future__ import annotations

import re
from pathlib import Path
from statistics import fmean

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


LIVE = {
    "qwen3-14b-h100": (300.0, 0.75),
    "qwen3-30b-a3b-910b": (300.0, 0.8),
    "qwen3-32b-h100": (300.0, 0.8),
    "qwen3.5-9b-h100": (300.0, 0.5),
    "qwen3-235b-a22b-h100": (600.0, 0.5),
}
"""Live study → seconds that a start is taken to last, and the least share under load (docs/benchmarks.md)."""


def durations(study: str) -> dict[str, float]:
    """Seconds of one round, by the name of its log, which ends with the workload's."""
    logs = (ROOT / "config/recorded" / study / "logs").glob("*.txt")
    found = {log.stem: re.findall(r"Benchmark duration \(s\):\s+([0-9.]+)", log.read_text()) for log in logs}
    return {name: fmean(map(float, values)) for name, values in found.items() if values}


@pytest.mark.parametrize("study", LIVE)
def test_a_live_study_is_mostly_under_load(study, capsys):
    """Each new candidate is 3 % faster than the last, so that a proof follows."""
    project, known = load_project(ROOT / "config/studies" / f"{study}.yaml", ROOT), durations(study)
    start_up_s, least = LIVE[study]
    round_s = {
        name: next(
            fmean(found)
            for end in (name, each.of)
            if (found := [seconds for log, seconds in known.items() if log.endswith(end)])
        )
        for name, each in project.study.workloads.items()
    }
    draw, started, speeds = np.random.default_rng(1), set(), {}
    seconds = {kind: {"start-up": 0.0, "load": 0.0} for kind in ("search", "proof")}

    def measure(configuration, load, start):
        key, of_kind = key_of(configuration), seconds["proof" if start.startswith("proof") else "search"]
        if (key, start) not in started:
            started.add((key, start))
            of_kind["start-up"] += start_up_s * configuration.accelerators
        of_kind["load"] += project.study.protocol.rounds * round_s[load.workload] * configuration.accelerators
        speed = speeds.setdefault(key, 100 * 1.03 ** len(speeds))
        return Measured([float(speed * draw.normal(1, 0.01))])

    simulate_project(project, measure)
    whole = {name: sum(kind[name] for kind in seconds.values()) for name in ("start-up", "load")}
    shares = {name: of["load"] / sum(of.values()) for name, of in {**seconds, "all": whole}.items()}
    with capsys.disabled():
        print(f"\n{study}: under load " + ", ".join(f"{name} {100 * share:.0f} %" for name, share in shares.items()))
    assert shares["all"] >= least
