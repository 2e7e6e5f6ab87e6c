"""How often a whole study, search and proof, errs: simulated through the real plans and decisions, figures printed.

The worlds are made here and share nothing with the unit tests. STUDIES (300) sets how many studies a world gets,
STRATEGY how they are searched (adaptive), OPTIONS (5; or 1, 2, 4) over how many options the 20 candidates are
spread. One option is searched whole, in 0.05 s a study. Five are 3,125 combinations, of which the search measures a
hundred at most; that takes a second or more.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest
import yaml

from servelab.core.yaml_file import read_yaml
from servelab.search.project import load_project
from servelab.search.simulate import Measured, StudyResult, simulate_project

pytestmark = pytest.mark.bench

ROOT = Path(__file__).parents[2]
STUDIES = int(os.environ.get("STUDIES", "300"))
OPTIONS = int(os.environ.get("OPTIONS", "5"))
CANDIDATES = [(f"--x{option}", value) for option in range(OPTIONS) for value in range(1, 1 + 20 // OPTIONS)]
"""Argument and value of each."""
STARTUP_S, ROUND_S, ROUNDS = 60.0, 10.0, 3


@dataclass(frozen=True)
class World:
    """What makes equal configurations measure unequal."""

    rounds: float = 0.02
    """Standard deviation of a round, as a share."""
    starts: float = 0.0
    """Standard deviation of a server start."""
    slow_starts: float = 0.0
    """Share of the starts that are 15 % slower throughout."""
    neighbour: float = 0.0
    """Share of the ten-minute pieces of time in which a neighbour takes 10 %."""
    drift: float = 0.0
    """Change an hour."""


WORLDS = {
    "rounds 1 %": World(0.01),
    "rounds 2 %": World(0.02),
    "rounds 4 %": World(0.04),
    "rounds 8 %": World(0.08),
    "rounds 1 %, starts 1 %": World(0.01, 0.01),
    "rounds 1 %, starts 2 %": World(0.01, 0.02),
    "rounds 4 %, starts 2 %": World(0.04, 0.02),
    "rounds 4 %, starts 5 %": World(0.04, 0.05),
    "one start in eight 15 % slower": World(0.02, 0.01, slow_starts=0.12),
    "a neighbour takes 10 % for ten minutes": World(0.02, 0.01, neighbour=0.25),
    "drift of 3 % an hour": World(0.02, 0.01, drift=-0.03),
}


class Machine:
    """A machine that measures configurations of known speed, with a clock."""

    def __init__(self, world: World, seed: int, speed) -> None:
        self.world, self.speed, self.draw = world, speed, np.random.default_rng([seed, 11])
        self.clock_s = self.draw.uniform(0, 600)
        self.busy: dict[int, bool] = {}

    def measure(self, configuration, load, start) -> Measured:
        world, draw = self.world, self.draw
        level = math.log(self.speed(configuration)) + draw.normal(0, world.starts)
        level += math.log(0.85) if draw.random() < world.slow_starts else 0.0
        self.clock_s += STARTUP_S
        rounds = []
        for _ in range(ROUNDS):
            piece = int(self.clock_s // 600)
            slow = 0.9 if self.busy.setdefault(piece, bool(draw.random() < world.neighbour)) else 1.0
            drift = 1 + world.drift * self.clock_s / 3600
            rounds.append(math.exp(level) * slow * drift * (1 + draw.normal(0, world.rounds)))
            self.clock_s += ROUND_S
        return Measured(rounds, STARTUP_S + ROUNDS * ROUND_S)


@pytest.fixture
def project(tmp_path):
    """A stage for each option, 20 candidates together besides the baseline; one workload."""
    content = read_yaml(ROOT / "config/studies/cpu-smollm2.yaml")
    content |= {"proof": {}, "workloads": [content["objective"]["on"]]}
    content["protocol"]["rounds"] = 2
    content["stages"] = [
        {
            "name": f"s{option}",
            "candidates": [{"arguments": {name: value}} for name, value in CANDIDATES if name == f"--x{option}"],
        }
        for option in range(OPTIONS)
    ]
    content["search"] = {"strategy": os.environ.get("STRATEGY", "adaptive")}
    if OPTIONS == 1:
        content["search"]["visits"] = 1 + len(CANDIDATES)
    file = tmp_path / f"{content['study']}.yaml"
    file.write_text(yaml.safe_dump(content, sort_keys=False))
    return load_project(file, ROOT)


def many(project, world: World, effect_sd: float) -> list[tuple[StudyResult, float, int]]:
    """Results of studies, with the true change of what the search proposed in percent, and the visits of the search.

    Each candidate's true effect is drawn from N(0, `effect_sd`).
    """
    found = []
    for seed in range(STUDIES):
        draw = np.random.default_rng([seed, 7])
        effects = {candidate: draw.normal(0, effect_sd) for candidate in CANDIDATES}

        def speed(configuration, effects=effects):
            return 100 * math.exp(sum(effects.get(item, 0.0) for item in configuration.arguments.items()))

        result = simulate_project(project, Machine(world, seed, speed).measure, seed)
        found.append((result, speed(result.proposed) - 100, result.runs))
    return found


@pytest.mark.parametrize("world", WORLDS.values(), ids=list(WORLDS))
def test_a_study_of_nothing_ends_with_the_baseline(project, world, capsys):
    """20 candidates that change nothing: a false winner in at most 5 %."""
    results = many(project, world, 0.0)
    wrong = sum(result.verdict == "better" for result, _, _ in results)
    proved = sum(result.proof is not None for result, _, _ in results)
    with capsys.disabled():
        print(
            f"\nnull: {wrong} of {len(results)} false winners, {proved} proofs, "
            f"{fmean(runs for _, _, runs in results):.1f} runs"
        )
    assert wrong <= 0.05 * len(results) + 2 * math.sqrt(0.05 * 0.95 * len(results)), wrong


@pytest.mark.parametrize("effect_sd", [0.005, 0.02, 0.05])
@pytest.mark.parametrize("world", WORLDS.values(), ids=list(WORLDS))
def test_the_published_interval_covers_the_truth(project, world, effect_sd, capsys):
    """Over all proofs; those that end in a recommendation are printed apart."""
    proofs = [(each, truth) for each, truth, _ in many(project, world, effect_sd) if each.change is not None]
    kinds = {"all": proofs, "recommended": [each for each in proofs if each[0].verdict == "better"]}
    lines = []
    for name, of in kinds.items():
        if not of:
            continue
        covered = sum(result.change.low <= truth <= result.change.high for result, truth in of)
        bias = fmean(result.change.value - truth for result, truth in of)
        promised = fmean(result.proof.promised_change_percent - truth for result, truth in of)
        lines.append(
            f"{name}: {100 * covered / len(of):.1f} % of {len(of)} covered, found {bias:+.2f} points too much "
            f"(the search {promised:+.2f}), {fmean(result.proof.pairs for result, _ in of):.1f} pairs"
        )
    with capsys.disabled():
        print("\n" + "; ".join(lines))
    if not proofs:
        return  # the search found nothing to prove
    covered = sum(result.change.low <= truth <= result.change.high for result, truth in proofs)
    slack = 2 * math.sqrt(0.05 * 0.95 / len(proofs))
    assert 0.93 - slack <= covered / len(proofs), f"{covered} of {len(proofs)}"


@pytest.mark.parametrize("world", [WORLDS["rounds 1 %, starts 2 %"], WORLDS["rounds 4 %, starts 5 %"]], ids=str)
def test_an_agent_that_keeps_improvements_claims_gains_where_nothing_helps(project, world, capsys):
    """It measures each change once and keeps what is faster, as agents do by hand; the same machine, then the proof."""
    gains = []
    for seed in range(STUDIES):
        machine = Machine(world, seed, lambda configuration: 100.0)
        values = [fmean(machine.measure(None, None, "").rounds) for _ in range(1 + len(CANDIDATES))]
        gains.append(100 * (max(values) / values[0] - 1))
    proved = sum(result.verdict == "better" for result, _, _ in many(project, world, 0.0))
    with capsys.disabled():
        print(f"\nkept: {sum(gain > 0 for gain in gains)} of {STUDIES}, {fmean(gains):+.1f} %; proved: {proved}")
    assert proved <= 0.05 * STUDIES + 2 * math.sqrt(0.05 * 0.95 * STUDIES) < sum(gain > 0 for gain in gains)
