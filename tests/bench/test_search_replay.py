"""Every search strategy replayed on a grid that was measured once: what it takes, and how often it finds the best.

tests/data/grid holds 48 configurations of llama.cpp, each measured with the whole load. A replay draws each run anew
from what was measured of it, and goes through the real plans and decisions; what the grid gave on average is taken for
the truth.
"""

from __future__ import annotations

import csv
import json
import math
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import yaml

from servelab.core.identity import canonical_json
from servelab.core.yaml_file import read_yaml
from servelab.metrics.statistics import mean_ci95
from servelab.search.options_space import product
from servelab.search.project import load_project
from servelab.search.simulate import Measured, run_search
from servelab.search.strategies import STRATEGIES
from servelab.study.configuration import Configuration, Load, baseline
from servelab.study.project import Project

pytestmark = pytest.mark.bench

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests/data/grid"
TRIES = 200
MOST_OF_THE_GRIDS_TIME = 0.35
LEAST_FOUND = 0.95
SEARCHES = {"staged": {}, "grid": {}, "adaptive": {}}
"""Strategy → its keys of `search` where they are not the defaults: 8 requests can be shortened once."""


@dataclass(frozen=True)
class Run:
    """A recorded run."""

    choices: tuple[str, ...]
    """What makes its configuration: weights, options and arguments, one each."""
    rounds: np.ndarray
    accelerator_s: float
    load_s: float

    @property
    def mean(self) -> float:
        return float(self.rounds.mean())

    @property
    def residuals(self) -> np.ndarray:
        """How far each round is from the mean, as a share of it; widened by √(n / (n − 1)) to a sample's variance."""
        count = len(self.rounds)
        return (self.rounds / self.mean - 1) * math.sqrt(count / (count - 1))


def read_runs() -> dict[str, Run]:
    """The recorded runs by what they served: model, options and arguments, as JSON."""
    rounds: dict[str, list[float]] = {}
    with (DATA / "rounds.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            rounds.setdefault(row["run_id"], []).append(float(row["total_tokens_per_s"]))
    with (DATA / "runs.csv").open(encoding="utf-8") as file:
        return {
            canonical_json([row["model"], json.loads(row["options"]), json.loads(row["arguments"])]): Run(
                choices=(row["model"], *json.loads(row["options"]), *json.loads(row["arguments"])),
                rounds=np.array(rounds[row["run_id"]]),
                accelerator_s=float(row["accelerator_s"]),
                load_s=float(row["load_s"]),
            )
            for row in csv.DictReader(file)
        }


class Grid:
    """What was measured, and runs drawn from it."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.runs = read_runs()
        self.between = between_runs(list(self.runs.values()))

    def run_of(self, configuration: Configuration) -> Run:
        """The recorded run of a configuration."""
        start = baseline(self.project.study).configuration
        given = [
            {name: value for name, value in of.items() if name not in base}
            for of, base in ((configuration.options, start.options), (configuration.arguments, start.arguments))
        ]
        return self.runs[canonical_json([configuration.model, *given])]

    def drawn(self, draw: np.random.Generator, configuration: Configuration, load: Load) -> Measured:
        """A run as it might have been: off by what runs differ by, its rounds by what rounds differ by."""
        run = self.run_of(configuration)
        count = self.project.study.protocol.rounds
        values = run.mean * (1 + draw.normal(0, self.between) + draw.choice(run.residuals, count))
        start_s = (run.accelerator_s - run.load_s) / len(run.rounds)  # with warm-up and stopping, each round's own
        took_s = count * (start_s + run.load_s / len(run.rounds))
        return Measured(rounds=[float(value) for value in values], accelerator_s=took_s)

    @cached_property
    def whole(self) -> list[Run]:
        """All runs, the best first."""
        return sorted(self.runs.values(), key=lambda run: -run.mean)

    @property
    def took_s(self) -> float:
        """Accelerator time of the exhaustive grid."""
        return sum(run.accelerator_s for run in self.whole)

    def noise_percent(self) -> float:
        """How far off the truth a run of the best is, 95 times in 100: by its rounds, and by what runs differ by."""
        best = self.whole[0]
        mean, low, _ = mean_ci95(list(best.rounds))
        assert low is not None
        return math.hypot(100 * (mean - low) / mean, 196 * self.between)

    def loss_percent(self, configuration: Configuration) -> float:
        """How much less than the best a configuration truly gives."""
        return 100 * (1 - self.run_of(configuration).mean / self.whole[0].mean)


def between_runs(runs: list[Run]) -> float:
    """Standard deviation from run to run that rounds do not explain, as a share of the mean: at most so much.

    What is left of the logarithms of the means behind the effects of each choice and of each two of them, less what the
    rounds' own noise leaves in a mean. Three choices that act together count as noise here.
    """
    names = sorted({choice for run in runs for choice in run.choices})
    mains = np.array([[choice in run.choices for choice in names] for run in runs], dtype=float)
    pairs = [mains[:, a] * mains[:, b] for a, b in combinations(range(len(names)), 2)]
    design = np.column_stack([np.ones(len(runs)), mains, *pairs])
    logs = np.log([run.mean for run in runs])
    fitted, _, rank, _ = np.linalg.lstsq(design, logs, rcond=None)
    left = float(((logs - design @ fitted) ** 2).sum()) / (len(runs) - int(rank))
    explained = float(np.mean([(run.residuals**2).mean() / len(run.rounds) for run in runs]))
    return math.sqrt(max(0.0, left - explained))


@cache
def project_of(strategy: str, folder: Path) -> Project:
    """The grid's study with another strategy."""
    content = read_yaml(ROOT / "config/studies/cpu-grid.yaml")
    content["search"] = {"strategy": strategy, **SEARCHES[strategy]}
    file = folder / strategy / "cpu-grid.yaml"
    file.parent.mkdir()
    file.write_text(yaml.safe_dump(content, sort_keys=False))
    return load_project(file, ROOT)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("studies")


def test_every_strategy_is_replayed():
    assert sorted(SEARCHES) == STRATEGIES.names()


def test_the_grid_is_whole(folder):
    """Every combination is recorded, under the name that its run would have if it were measured again."""
    project = project_of("grid", folder)
    grid = Grid(project)
    configurations = [baseline(project.study).configuration, *(each.configuration for each in product(project.study))]
    assert len(configurations) == 48
    assert {id(grid.run_of(configuration)) for configuration in configurations} == set(map(id, grid.whole))
    assert all(len(run.rounds) == project.study.protocol.rounds for run in grid.whole)


@pytest.mark.parametrize("strategy", sorted(SEARCHES))
def test_replayed(strategy, folder, capsys):
    project = project_of(strategy, folder)
    grid = Grid(project)
    draw = np.random.default_rng(20261121)
    shares, losses, runs = [], [], []
    for _ in range(TRIES):
        taken: list[Measured] = []

        def measure(configuration: Configuration, load: Load, start: str, taken: list[Measured] = taken) -> Measured:
            taken.append(grid.drawn(draw, configuration, load))
            return taken[-1]

        past = run_search(project, measure)
        shares.append(sum(run.accelerator_s for run in taken) / grid.took_s)
        losses.append(grid.loss_percent(past[-1].winner.configuration))
        runs.append(len(taken))
    noise = grid.noise_percent()
    found = sum(loss <= noise for loss in losses)
    margin = project.study.objective.margin_percent
    with capsys.disabled():
        print(
            f"\n{strategy}: {np.mean(shares):.1%} of the grid's time, most {max(shares):.1%}; {np.mean(runs):.1f} "
            f"runs; within {noise:.1f} % of the best in {found} of {TRIES}, within {margin:g} % in "
            f"{sum(loss <= margin for loss in losses)}, the best itself in {losses.count(0.0)}; "
            f"loss on average {np.mean(losses):.2f} %, at most {max(losses):.1f} %"
        )
    assert found >= LEAST_FOUND * TRIES
    assert strategy == "grid" or np.mean(shares) <= MOST_OF_THE_GRIDS_TIME
