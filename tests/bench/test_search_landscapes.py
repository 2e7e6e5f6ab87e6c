"""How often each search finds a configuration within 3 % of the best, on made-up landscapes, and what it takes.

Each study is drawn anew: the effects of its options, the noise of each server start (1.5 %) and of each round (2 %,
three rounds a start). Studies go through the real plans and decisions, the proof included. `SEARCHED_STUDIES` sets the
number of studies; an adaptive one takes about a second.

Beside them, at the cost of the adaptive search: configurations at random.
"""

from __future__ import annotations

import math
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from landscape_families import FAMILIES, Draw, Landscape, Stages, listed, pairs, plain

from servelab.core.yaml_file import read_yaml
from servelab.search.options_space import Space, space_of
from servelab.search.project import load_project
from servelab.search.simulate import Measured, simulate_project
from servelab.search.strategies.adaptive import visits_of
from servelab.study.configuration import key_of
from servelab.study.plan import PROOF
from servelab.study.project import Project

pytestmark = pytest.mark.bench

ROOT = Path(__file__).parents[2]
STUDIES = int(os.environ.get("SEARCHED_STUDIES", "300"))
BETWEEN_STARTS, BETWEEN_ROUNDS, ROUNDS = 0.015, 0.02, 3
NEAR, FAR = -math.log(0.97), -math.log(0.9)
"""Found is what is truly within 3 % of the best; far is what loses more than 10 %."""
LARGE = ([4, 5, 5, 5, 2], [10, 5, 5, 2, 2])
STRATEGIES = ("adaptive", "staged")
LOADS = ("random-4000-200-inf-500", "sharegpt-inf-1000")
MOST_OF_GRID = 0.45
"""Starts of an adaptive search, against those of a grid."""


@pytest.fixture(scope="module")
def project_of(tmp_path_factory):
    """The study with these stages: arguments of an engine that is never started."""
    folder, made = tmp_path_factory.mktemp("studies"), {}

    def make(stages: Stages, strategy: str) -> Project:
        key = (strategy, str(stages))
        if key not in made:
            content = read_yaml(ROOT / "config/studies/cpu-smollm2.yaml")
            content |= {"study": f"{strategy}-{len(made)}", "stages": stages, "search": {"strategy": strategy}}
            content |= {"proof": {}, "workloads": [content["objective"]["on"]]}
            content["protocol"]["rounds"] = 2
            content["objective"]["margin_percent"] = 2
            file = folder / f"{content['study']}.yaml"
            file.write_text(yaml.safe_dump(content, sort_keys=False))
            made[key] = load_project(file, ROOT)
        return made[key]

    return make


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """The project's study of Qwen3-235B, and its published figures: a landscape per node.

    What the page has not is made from what it has: options multiply; 32768 tokens gain 5 % where they work.
    """
    file = tmp_path_factory.mktemp("published") / "qwen3-235b-a22b-h100.yaml"
    content = read_yaml(ROOT / "config/studies" / file.name)
    file.write_text(yaml.safe_dump(content | {"search": {"strategy": "adaptive"}}, sort_keys=False))
    project = load_project(file, ROOT)
    truth, works = [], []
    for variant in space_of(project.study).variants:
        served = variant.configuration
        has_four, is_expert = served.accelerators == 4, bool(served.options.get("expert_parallel"))
        batched = served.options.get("max_num_batched_tokens")
        value = 2 * (7131.69 if is_expert else 7527.80) if has_four else 8102.36 if served.model == "fp8" else 8424.86
        value *= {16384: 7787.17 / 7527.80, 32768: 1.05}.get(batched, 1.0)  # type: ignore[call-overload]
        truth.append(math.log(7671.31 if served.engine == "sglang" else value))
        works.append(not served.environment_variables and not (has_four and batched == 32768))
    return project, (np.array(truth), np.array(works))


def started(draw: Draw, truth: float) -> list[float]:
    """The rounds of one start of a configuration whose logarithm is `truth`."""
    rounds = np.exp(truth + draw.normal(0, BETWEEN_STARTS)) * (1 + draw.normal(0, BETWEEN_ROUNDS, ROUNDS))
    return [100 * float(value) for value in rounds]


def searched(draw: Draw, project: Project, landscape: Landscape) -> tuple[float, float, float]:
    """What a study's search loses against the best, as a logarithm, and the starts of search and proof."""
    space, (truth, is_working) = space_of(project.study), landscape
    positions = {key_of(variant.configuration): at for at, variant in enumerate(space.variants)}
    starts = {"search": 0, "proof": 0}
    per_node = project.study.hardware.per_node

    def measure(configuration, load, start):
        at = positions[key_of(configuration)]
        starts["proof" if start.startswith(PROOF) else "search"] += 1
        if not is_working[at]:
            return Measured(failed="crashed", accelerator_s=60.0)
        return Measured(started(draw, truth[at] - math.log(per_node / configuration.accelerators)), 60.0)

    proposed = positions[key_of(simulate_project(project, measure).proposed)]
    return float(truth[is_working].max() - truth[proposed]), starts["search"], starts["proof"]


def sampled(draw: Draw, space: Space, visits: int, landscape: Landscape) -> float:
    """What the best of so many configurations drawn at random, the baseline among them, loses against the best."""
    truth, is_working = landscape
    tried = [at for at in (0, *(1 + draw.choice(len(space) - 1, visits - 1, replace=False))) if is_working[at]]
    winner = max(tried, key=lambda at: float(np.log(started(draw, truth[at])).mean()))
    return float(truth[is_working].max() - truth[winner])


def shares(losses: list[float]) -> tuple[float, float, str]:
    """Shares of studies that are near the best and far from it, and both in words."""
    near, far = (float(np.mean(found)) for found in (np.array(losses) <= NEAR, np.array(losses) > FAR))
    return near, far, f"within 3 % in {near:.0%} of {len(losses)}, more than 10 % lost in {far:.1%}"


def cost(searches: list[float], proofs: list[float], of: int) -> str:
    """Starts of searches and proofs in words, and what share of a grid `of` so many configurations they are."""
    both = np.array(searches) + np.array(proofs)
    return f"{np.mean(searches):.1f} starts, with the proof {both.mean():.1f}, {both.mean() / of:.1%} of the grid"


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_48_configurations(strategy, family, project_of, capsys):
    wanted, found = FAMILIES[family], []
    for seed in range(STUDIES):
        draw, project = np.random.default_rng(seed), project_of(wanted.stages[seed % len(wanted.stages)], strategy)
        found.append(searched(draw, project, wanted.landscape(draw, space_of(project.study))))
    losses, searches, proofs = map(list, zip(*found, strict=True))
    near, far, text = shares(losses)
    with capsys.disabled():
        print(f"\n{family}, {strategy}: {text}; {cost(searches, proofs, 48)}")
    if strategy == "adaptive":
        assert near >= wanted.least
        assert far <= wanted.most_far
        assert max(searches) <= MOST_OF_GRID * 48


def test_published_figures(published, capsys):
    project, landscape = published
    found = [searched(np.random.default_rng(seed), project, landscape) for seed in range(STUDIES)]
    near, far, text = shares([loss for loss, _, _ in found])
    with capsys.disabled():
        print(f"\nQwen3-235B, adaptive: {text}; {np.mean([starts for _, starts, _ in found]):.1f} of 25 starts")
    assert near >= 0.9 and far <= 0.02
    assert max(starts for _, starts, _ in found) <= MOST_OF_GRID * len(landscape[0])


@pytest.mark.parametrize("family", FAMILIES)
def test_random_at_equal_cost(family, project_of, capsys):
    """As many configurations as the adaptive search may measure; nothing is asked of them."""
    wanted, losses = FAMILIES[family], []
    for seed in range(STUDIES):
        draw, project = np.random.default_rng(seed), project_of(wanted.stages[seed % len(wanted.stages)], "adaptive")
        space = space_of(project.study)
        losses.append(sampled(draw, space, visits_of(project.study), wanted.landscape(draw, space)))
    with capsys.disabled():
        print(f"\n{family}, random: {shares(losses)[2]}")


def simulated_kernels(load, project_of) -> tuple[Project, Landscape]:
    """Qwen3-32B with vLLM on 8 H100, 672 configurations: simulated from kernel timings of aiconfigurator, Apache-2.0.

    The baseline is the first value of each option; what is not in the table is taken to crash.
    """
    table = pd.read_parquet(ROOT / "tests/data/landscapes/simulated-qwen3-32b-8xh100.parquet")
    values = {name: list(dict.fromkeys(table[name])) for name in table.columns[:6]}
    stages = [listed(name, f"--{name}", each[1:]) for name, each in values.items()]
    project = project_of(stages, "adaptive")
    known = dict(zip(map(tuple, table.iloc[:, :6].to_numpy().tolist()), table[load], strict=True))
    speeds = [
        known.get(tuple(each.configuration.arguments.get(f"--{name}", of[0]) for name, of in values.items()), math.nan)
        for each in space_of(project.study).variants
    ]
    return project, (np.log(np.nan_to_num(speeds, nan=1.0)), np.isfinite(speeds))


@pytest.mark.parametrize("load", LOADS)
def test_simulated_kernels(load, project_of, capsys):
    project, landscape = simulated_kernels(load, project_of)
    found = [searched(np.random.default_rng(seed), project, landscape) for seed in range(max(1, STUDIES // 10))]
    near, _, text = shares([loss for loss, _, _ in found])
    with capsys.disabled():
        print(f"\nsimulated kernels, {load}: {text}; {np.mean([starts for _, starts, _ in found]):.1f} starts")
    assert near >= 0.9
    assert max(starts for _, starts, _ in found) <= 60


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_1000_configurations(strategy, project_of, capsys):
    found = []
    for seed in range(max(1, STUDIES // 5)):
        draw, project = np.random.default_rng(seed), project_of(plain(LARGE[seed % len(LARGE)]), strategy)
        found.append(searched(draw, project, pairs(draw, space_of(project.study))))
    losses, searches, proofs = map(list, zip(*found, strict=True))
    near, _, text = shares(losses)
    with capsys.disabled():
        print(f"\n1,000, {strategy}: {text}; {cost(searches, proofs, 1000)}")
    if strategy == "adaptive":
        assert near >= 0.95
        assert max(searches) <= 61
