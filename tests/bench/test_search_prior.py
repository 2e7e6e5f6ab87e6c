"""What a prior saves in starts to within 3 % of the best, right and wrong on purpose, on simulated kernel timings.

The landscape is Qwen3-32B's of tests/data/landscapes, simulated from aiconfigurator's kernel timings (Apache-2.0). A
right prior is off by 12 %; shuffled, reversed, with one option 30 % too good, or exaggerated, it is wrong.
`PRIOR_STUDIES` sets how many studies are searched with each; one takes half a minute.
"""

from __future__ import annotations

import math
import os
from dataclasses import replace

import numpy as np
import pytest
from test_search_landscapes import LOADS, NEAR, project_of, simulated_kernels, started  # noqa: F401 - a fixture

from servelab.search.options_space import space_of
from servelab.search.simulate import Measured, run_search
from servelab.study.configuration import key_of
from servelab.study.predictions import Predictions

pytestmark = pytest.mark.bench
STUDIES = int(os.environ.get("PRIOR_STUDIES", "2"))
PRIORS = {
    "none": lambda truth, draw, first: None,
    "right": lambda truth, draw, first: truth,
    "scaled": lambda truth, draw, first: 3 * truth,
    "shuffled": lambda truth, draw, first: draw.permutation(truth),
    "reversed": lambda truth, draw, first: -truth,
    "30 % too good": lambda truth, draw, first: truth + math.log(1.3) * first,
}


def searched(project, truth, works, draw):
    """Starts until what is within 3 % of the best is measured, and what the search's winner loses."""
    at_of = {key_of(each.configuration): at for at, each in enumerate(space_of(project.study).variants)}
    seen: list[int] = []

    def measure(configuration, load, start):
        seen.append(at_of[key_of(configuration)])
        found = started(draw, truth[seen[-1]])
        return Measured(found, 60.0) if works[seen[-1]] else Measured(failed="crashed", accelerator_s=60.0)

    winner = at_of[key_of(run_search(project, measure)[-1].winner.configuration)]
    best = truth[works].max()
    near = [number for number, at in enumerate(seen, 1) if works[at] and best - truth[at] <= NEAR]
    return min(near, default=2 * len(seen)), best - truth[winner]


@pytest.mark.parametrize("load", LOADS)
def test_what_a_prior_saves(load, project_of, capsys):  # noqa: F811 - a fixture
    project, (truth, works) = simulated_kernels(load, project_of)
    space = space_of(project.study)
    keys = [key_of(each.configuration) for each in space.variants]
    likely = np.where(works, truth, truth[works].mean())
    starts: dict[str, float] = {}
    for name, make in PRIORS.items():
        found = []
        for seed in range(STUDIES):
            draw = np.random.default_rng(seed)
            logs, of = make(likely, draw, space.levels[:, 0] > 0), project
            if logs is not None:
                logs = np.exp(logs + draw.normal(0, 0.12, len(logs)))
                of = replace(
                    project, predictions=Predictions(values=dict(zip(keys, logs.tolist(), strict=True)), error=0.15)
                )
            found.append(searched(of, truth, works, np.random.default_rng(seed + 7)))
        starts[name] = float(np.mean([each for each, _ in found]))
        lost = max(loss for _, loss in found)
        with capsys.disabled():
            print(f"\n{load}, prior {name}: {starts[name]:.1f} starts to within 3 %; loses {100 * lost:.1f} % at most")
        assert lost <= NEAR
    assert starts["right"] <= 0.6 * starts["none"]
