"""How often each search finds a configuration within 3 % of the best, on made-up landscapes, and what it takes.

Each study is drawn anew: the effects of its options, the noise of each server start (1.5 %) and of each round (2 %,
three rounds a start). Studies go through the real plans and decisions, the proof included. `SEARCHED_STUDIES` sets the
number of studies; an adaptive one takes about a third of a second, among 1,000 configurations one.

Beside them, at the cost of the adaptive search: configurations at random, and the tree-structured Parzen estimator of
Optuna (Bergstra et al. 2011, "Algorithms for hyper-parameter optimization"). Optuna is no part of this project; the
comparison is skipped where it is not installed.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from itertools import combinations
from math import prod
from pathlib import Path

import numpy as np
import pytest
import yaml

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
NEAR = -math.log(0.97)
"""Found is what is truly within 3 % of the best."""
SHORT_LOAD_DIFFERS = 0.05
"""Standard deviation from configuration to configuration of what a short load gives against the whole one; assumed."""
SHAPES = ([2] * 6, [2, 2, 3, 4], [3, 2, 2, 2, 2])
"""Choices of each option, none included; the last of six options is there only with the first: 48 combinations each."""
LARGE = ([4, 5, 5, 5, 2], [10, 5, 5, 2, 2])
SEARCHES: dict[str, dict[str, object]] = {"adaptive": {}, "staged": {}}
LEAST = {"together": 0.95, "late": 0.95, "additive": 0.90, "pairs": 0.90, "threes": 0.80, "crashes": 0.80, "null": 1.0}
"""Family → least share of studies in which the adaptive search finds it."""
MOST_OF_GRID = 0.40
"""Starts of an adaptive study on average, its proof included, against those of a grid."""

Draw = np.random.Generator
Landscape = tuple[np.ndarray, np.ndarray]
"""(combinations,): logarithms of the truth, and whether each works."""


def effects(draw: Draw, space: Space, size: float) -> np.ndarray:
    """Each choice changes the objective by up to `size`, up or down."""
    truth = np.zeros(len(space))
    for option, count in enumerate(space.counts):
        truth += np.log1p([0.0, *draw.uniform(-size, size, count - 1)])[space.levels[:, option]]
    return truth


def pair_effects(draw: Draw, space: Space, size: float) -> np.ndarray:
    """And each two choices by up to `size` more."""
    truth = np.zeros(len(space))
    for one, other in combinations(range(len(space.counts)), 2):
        found = np.log1p(draw.uniform(-size, size, (space.counts[one], space.counts[other])))
        found[0], found[:, 0] = 0, 0
        truth += found[space.levels[:, one], space.levels[:, other]]
    return truth


def some(draw: Draw, space: Space, number: int) -> list[np.ndarray]:
    """Which combinations have each of `number` choices of different options, in the options' order; some have all."""
    while True:
        options = np.sort(draw.choice(len(space.counts), number, replace=False))
        chosen = [space.levels[:, option] == draw.integers(1, space.counts[option]) for option in options]
        if np.all(chosen, axis=0).any():
            return chosen


def works(space: Space) -> np.ndarray:
    """All combinations."""
    return np.ones(len(space), dtype=bool)


def together(draw: Draw, space: Space) -> Landscape:
    """Two choices that only help together, by 15 %."""
    one, other = some(draw, space, 2)
    return effects(draw, space, 0.03) + math.log(1.15) * (one & other), works(space)


def late(draw: Draw, space: Space) -> Landscape:
    """A choice that loses 6 % alone, and gains 15 % beside a later one."""
    early, later = some(draw, space, 2)
    truth = effects(draw, space, 0.03) + math.log(0.94) * (early & ~later)
    return truth + math.log(1.15) * (early & later), works(space)


def additive(draw: Draw, space: Space) -> Landscape:
    """Effects of up to 8 % that add up."""
    return effects(draw, space, 0.08), works(space)


def pairs(draw: Draw, space: Space) -> Landscape:
    """Effects of up to 8 %, and of each pair of choices of up to 5 %."""
    return effects(draw, space, 0.08) + pair_effects(draw, space, 0.05), works(space)


def threes(draw: Draw, space: Space) -> Landscape:
    """Effects of up to 6 %, and three choices that gain 12 % together."""
    return effects(draw, space, 0.06) + math.log(1.12) * np.all(some(draw, space, 3), axis=0), works(space)


def crashes(draw: Draw, space: Space) -> Landscape:
    """As `pairs`, but one choice crashes, and two others crash together."""
    truth, _ = pairs(draw, space)
    (one,), two = some(draw, space, 1), some(draw, space, 2)
    return truth, ~one & ~np.all(two, axis=0)


def null(draw: Draw, space: Space) -> Landscape:
    """Options that change nothing."""
    return np.zeros(len(space)), works(space)


FAMILIES: dict[str, Callable[[Draw, Space], Landscape]] = {
    each.__name__: each for each in (together, late, additive, pairs, threes, crashes, null)
}


@pytest.fixture(scope="module")
def project_of(tmp_path_factory):
    """The study with these options: arguments of an engine that is never started."""
    folder, made = tmp_path_factory.mktemp("studies"), {}

    def make(shape: Sequence[int], strategy: str) -> Project:
        name = f"{strategy}-{'-'.join(map(str, shape))}"
        if name not in made:
            content = read_yaml(ROOT / "config/studies/cpu-smollm2.yaml")
            content["stages"] = [stage(option, count, len(shape)) for option, count in enumerate(shape)]
            content |= {"study": name, "search": {"strategy": strategy, **SEARCHES[strategy]}}
            content |= {"proof": {}, "workloads": [content["objective"]["on"]]}
            content["protocol"]["rounds"] = 2
            content["objective"]["margin_percent"] = 2
            file = folder / f"{name}.yaml"
            file.write_text(yaml.safe_dump(content, sort_keys=False))
            made[name] = load_project(file, ROOT)
        return made[name]

    return make


def stage(option: int, count: int, options: int) -> dict[str, object]:
    """A stage with each choice of an option but none."""
    key = ("options", "max_num_seqs") if option == 0 else ("arguments", f"--option-{option}")
    found: dict[str, object] = {
        "name": f"option-{option}",
        "candidates": [{"label": f"{option}={choice}", key[0]: {key[1]: choice}} for choice in range(1, count)],
    }
    return found | ({"when": {"options.max_num_seqs": 1}} if option == 5 and options == 6 else {})


def started(draw: Draw, truth: float, divisor: int = 1) -> list[float]:
    """The rounds of one start of a configuration whose logarithm is `truth`."""
    off = draw.normal(0, BETWEEN_STARTS) + (draw.normal(0, SHORT_LOAD_DIFFERS) if divisor > 1 else 0.0)
    rounds = 100 * np.exp(truth + off) * (1 + draw.normal(0, BETWEEN_ROUNDS * math.sqrt(divisor), ROUNDS))
    return [float(value) for value in rounds]


def searched(draw: Draw, project: Project, landscape: Landscape) -> tuple[float, float, float]:
    """What a study's search loses against the best, as a logarithm, and the whole loads of search and proof.

    A short load is a part of a whole one.
    """
    space, (truth, is_working) = space_of(project.study), landscape
    positions = {key_of(variant.configuration): at for at, variant in enumerate(space.variants)}
    loads = {"search": [], "proof": []}

    def measure(configuration, load, start):
        at = positions[key_of(configuration)]
        loads["proof" if start.startswith(PROOF) else "search"].append(1 / load.divisor)
        if not is_working[at]:
            return Measured(failed="crashed", accelerator_s=60.0)
        return Measured(started(draw, truth[at], load.divisor), 60.0 / load.divisor)

    proposed = positions[key_of(simulate_project(project, measure).proposed)]
    return float(truth[is_working].max() - truth[proposed]), sum(loads["search"]), sum(loads["proof"])


def sampled_at_random(draw: Draw, space: Space, visits: int, measure: Callable[[int], float | None]) -> None:
    """Measures the baseline and other configurations, each once."""
    for at in [0, *(1 + draw.choice(len(space) - 1, visits - 1, replace=False))]:
        measure(int(at))


def sampled_by_tpe(draw: Draw, space: Space, visits: int, measure: Callable[[int], float | None]) -> None:
    """Measures the baseline and what Optuna's sampler asks for; it may ask for a configuration again.

    Half of the visits are at random before its model begins, as many as the adaptive search's design has. An option
    that is there only with another's choice is asked for only then.
    """
    optuna = pytest.importorskip("optuna")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sampler = optuna.samplers.TPESampler(seed=int(draw.integers(2**31)), n_startup_trials=-(-visits // 2))
    study = optuna.create_study(direction="maximize", sampler=sampler)
    study.enqueue_trial({str(option): 0 for option in range(len(space.counts))})
    for _ in range(visits):
        trial, fits = study.ask(), np.ones(len(space), dtype=bool)
        for option in range(len(space.counts)):
            if len(np.unique(space.levels[fits, option])) > 1:
                choices = list(range(space.counts[option]))
                fits &= space.levels[:, option] == trial.suggest_categorical(str(option), choices)
        value = measure(int(np.flatnonzero(fits)[0]))
        study.tell(trial, value, state=optuna.trial.TrialState.FAIL if value is None else None)


SAMPLERS = {"random": sampled_at_random, "tpe": sampled_by_tpe}


def sampled(draw: Draw, space: Space, visits: int, landscape: Landscape, sampler: str) -> float:
    """What the best measured configuration loses against the best, as a logarithm, after as many starts as `visits`."""
    truth, is_working = landscape
    values: dict[int, list[float]] = {}
    starts = []

    def measure(at: int) -> float | None:
        starts.append(at)
        if not is_working[at]:
            return None
        values.setdefault(at, []).append(float(np.log(started(draw, truth[at])).mean()))
        return values[at][-1]

    SAMPLERS[sampler](draw, space, visits, measure)
    assert len(starts) == visits
    winner = max(values, key=lambda at: float(np.mean(values[at])))
    return float(truth[is_working].max() - truth[winner])


def searches(project_of, strategy: str, family: str, shapes, studies: int) -> tuple[list[float], ...]:
    found = []
    for seed in range(studies):
        draw = np.random.default_rng(seed)
        project = project_of(shapes[seed % len(shapes)], strategy)
        found.append(searched(draw, project, FAMILIES[family](draw, space_of(project.study))))
    return tuple(map(list, zip(*found, strict=True)))


def cost(loads: list[float], proofs: list[float], of: int) -> str:
    """Whole loads of searches and proofs in words, and what share of a grid `of` so many configurations they are."""
    both = [search + proof for search, proof in zip(loads, proofs, strict=True)]
    proved = [proof / 2 for proof in proofs if proof]
    return (
        f"{np.mean(loads):.1f} whole loads, most {max(loads):.1f}; with the proof {np.mean(both):.1f}, most "
        f"{max(both):.1f}, {100 * np.mean(both) / of:.1f} % of the grid; {np.mean(proved or [0]):.1f} pairs"
    )


@pytest.mark.parametrize("family", sorted(FAMILIES))
@pytest.mark.parametrize("strategy", sorted(SEARCHES))
def test_48_configurations(strategy, family, project_of, capsys):
    losses, loads, proofs = searches(project_of, strategy, family, SHAPES, STUDIES)
    near = sum(loss <= NEAR for loss in losses)
    with capsys.disabled():
        print(
            f"\n{family}, {strategy}: within 3 % in {near} of {STUDIES}, mean loss {100 * np.mean(losses):.2f} %, "
            f"{cost(loads, proofs, 48)}"
        )
    if strategy == "adaptive":
        assert near >= LEAST[family] * STUDIES
        assert max(loads) <= 14
        assert np.mean(loads) + np.mean(proofs) <= MOST_OF_GRID * 48


@pytest.mark.parametrize(
    ("family", "shapes"),
    [*((family, SHAPES) for family in sorted(FAMILIES)), ("pairs", LARGE)],
    ids=[*sorted(FAMILIES), "pairs-of-1000"],
)
@pytest.mark.parametrize("sampler", sorted(SAMPLERS))
def test_samplers_at_equal_cost(sampler, family, shapes, project_of, capsys):
    """Random configurations and TPE measure the most that the adaptive search may; nothing is asked of them."""
    losses, visits = [], set()
    for seed in range(STUDIES):
        draw, project = np.random.default_rng(seed), project_of(shapes[seed % len(shapes)], "adaptive")
        space = space_of(project.study)
        visits.add(visits_of(project.study))
        losses.append(sampled(draw, space, max(visits), FAMILIES[family](draw, space), sampler))
    near = sum(loss <= NEAR for loss in losses)
    with capsys.disabled():
        print(
            f"\n{family}, {sampler}, {len(space)} configurations: within 3 % in {near} of {STUDIES}, "
            f"mean loss {100 * np.mean(losses):.2f} %, {max(visits)} starts"
        )
    assert len(visits) == 1


@pytest.mark.parametrize("strategy", ["adaptive", "staged"])
def test_1000_configurations(strategy, project_of, capsys):
    studies = max(1, STUDIES // 5)
    losses, loads, proofs = searches(project_of, strategy, "pairs", LARGE, studies)
    near = sum(loss <= NEAR for loss in losses)
    with capsys.disabled():
        print(f"\n1,000, {strategy}: within 3 % in {near} of {studies}, {cost(loads, proofs, 1000)}")
    assert all(prod(shape) == 1000 for shape in LARGE)
    if strategy == "adaptive":
        assert near >= 0.95 * studies
        assert max(loads) <= 90
