"""Made-up landscapes for the search: families of studies, each drawn anew from a seed.

A landscape is what each combination of a study's options is truly worth, and whether it works.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from servelab.search.options_space import Space

Draw = np.random.Generator
Landscape = tuple[np.ndarray, np.ndarray]
"""(combinations,): logarithms of the truth, and whether each works."""
Stages = list[dict[str, object]]


def listed(name: str, key: str, values: Sequence[object]) -> dict[str, object]:
    """A stage with a candidate for each value of an option, or of an argument if `key` begins with `--`."""
    part = "arguments" if key.startswith("--") else "options"
    return {"name": name, "candidates": [{"label": f"{name}={value}", part: {key: value}} for value in values]}


def plain(shape: Sequence[int]) -> Stages:
    """A stage for each option with so many choices, none included; the last of six is there only with the first."""
    found = [
        listed(f"option-{option}", f"--option-{option}" if option else "max_num_seqs", range(1, count))
        for option, count in enumerate(shape)
    ]
    if len(shape) == 6:
        found[5]["when"] = {"options.max_num_seqs": 1}
    return found


MEMORY = [
    listed("memory", "--memory", [0.85, 0.9, 0.95]),
    listed("sequences", "max_num_seqs", [16, 32, 64]),
    listed("length", "context_length", [4096, 8192]),
]
BATCHES = [
    listed("engine", "--kernel", ["b"]),
    listed("batch", "--batch", [1024, 2048, 4096, 8192, 16384]),
    listed("x", "--x", ["on"]),
    listed("y", "--y", ["on"]),
]
SWITCHES = [
    listed("engine", "--kernel", ["b"]),
    *(listed(x, f"--{x}", ["on"]) for x in "wxy"),
    listed("z", "--z", [1, 2]),
]


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


def gaining(draw: Draw, space: Space, third: bool) -> Landscape:
    """One choice gains 40 to 80 % and crashes beside one of another option; with `third` a third one always crashes."""
    truth, options = effects(draw, space, 0.08), draw.permutation(len(space.counts))[:3]
    best, bad, worst = (space.levels[:, option] == draw.integers(1, space.counts[option]) for option in options)
    return truth + math.log(draw.uniform(1.4, 1.8)) * best, ~(best & bad) & ~(worst & third)


def company(draw: Draw, space: Space) -> Landscape:
    """One choice gains 40 to 80 %, and crashes beside one choice of another option."""
    return gaining(draw, space, third=False)


def worse_company(draw: Draw, space: Space) -> Landscape:
    """As `company`, and a choice of a third option always crashes."""
    return gaining(draw, space, third=True)


def rivals(draw: Draw, space: Space) -> Landscape:
    """Three choices gain 10 to 30 % alone; any two of them lose 5 to 30 %."""
    options = draw.choice(len(space.counts) - (len(space.counts) == 6), 3, replace=False)
    has = np.array([space.levels[:, option] == draw.integers(1, space.counts[option]) for option in options])
    gains, together = np.log(draw.uniform(1.1, 1.3, 3)), has.sum(0)
    truth = effects(draw, space, 0.03) + np.where(together == 1, gains @ has, 0.0)
    return truth - np.where(together > 1, draw.uniform(0.05, 0.3), 0.0), works(space)


def threshold(draw: Draw, space: Space) -> Landscape:
    """More of memory and sequences is better, until memory runs out: a sum of three options beyond a limit."""
    memory, sequences, length = space.levels.T
    truth = draw.uniform(0.02, 0.06) * memory + draw.uniform(0.05, 0.2) * sequences
    truth += draw.uniform(-0.05, 0.05) * length - draw.uniform(0, 0.015) * sequences**2
    needed = space.levels @ draw.uniform(0.5, 1.5, 3)
    is_working = needed <= np.quantile(needed, draw.uniform(0.4, 0.8))
    return truth + effects(draw, space, 0.01), is_working


def skewed(draw: Draw, space: Space) -> Landscape:
    """A size with an optimum, another one for each engine; beyond it the loss is steeper than before it."""
    engine, size = space.levels[:, 0], space.levels[:, 1]
    truth = effects(draw, space, 0.05)
    for each in (0, 1):
        best, before, beyond = draw.integers(0, 6), draw.uniform(0.04, 0.1), draw.uniform(0.1, 0.25)
        truth += (engine == each) * np.where(size <= best, before * (size - best), beyond * (best - size))
    return truth, works(space)


def inverted(draw: Draw, space: Space) -> Landscape:
    """An engine with which each other option has the opposite effect."""
    engine, truth = space.levels[:, 0], np.zeros(len(space))
    for option in range(1, len(space.counts)):
        count = space.counts[option] - 1
        effect = np.log1p([0.0, *draw.choice([-1, 1], count) * draw.uniform(0.05, 0.15, count)])
        truth += np.where(engine == 0, 1, -1) * effect[space.levels[:, option]]
    return truth + engine * draw.uniform(-0.1, 0.1), works(space)


SHAPES = ([2] * 6, [2, 2, 3, 4], [3, 2, 2, 2, 2])
"""Choices of each option, none included; the last of six options is there only with the first: 48 combinations each."""


class Family(NamedTuple):
    """A way to draw studies, and what the adaptive search must reach on them."""

    landscape: Callable[[Draw, Space], Landscape]
    least: float
    """Least share of studies in which it finds a configuration within 3 % of the best."""
    stages: Sequence[Stages] = tuple(map(plain, SHAPES))
    most_far: float = 0.1
    """Largest share of studies in which it loses more than 10 %."""


FAMILIES = {
    "together": Family(together, 0.9),
    "late": Family(late, 0.85),
    "additive": Family(additive, 0.9),
    "pairs": Family(pairs, 0.9),
    "threes": Family(threes, 0.8),
    "crashes": Family(crashes, 0.8),
    "null": Family(null, 1.0),
    "company": Family(company, 0.9, [plain(shape) for shape in SHAPES[1:]], 0.02),
    "worse_company": Family(worse_company, 0.9, [plain(shape) for shape in SHAPES[1:]], 0.03),
    "rivals": Family(rivals, 0.8),
    "threshold": Family(threshold, 0.9, [MEMORY], 0.02),
    "skewed": Family(skewed, 0.7, [BATCHES], 0.05),
    "inverted": Family(inverted, 0.9, [SWITCHES], 0.02),
}
