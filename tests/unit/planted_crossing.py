"""Simulated proofs of two configurations whose curves cross at a known load."""

import math

from servelab.search.proof import WINNER
from servelab.search.winner_map import Level, load_ranges

LEVELS = (1, 4, 16, 64, 256)
LATER = 4.0
"""The winner needs so many times as many requests in flight for half of its highest throughput."""
ROUND_SD = 0.01
"""Scatter of a run around its server start."""


def log_ratio(load, crossing, half=16.0):
    """Logarithm of winner / baseline at a load: both saturate, T(c) = most · c / (c + half), and cross once."""
    other = half * LATER
    return math.log(((crossing + other) / (crossing + half)) * ((load + half) / (load + other)))


def study_at(draw, crossing, pairs, start_sd):
    """The map's answer in one simulated study: its interval around the change to the winner, and whether it is named.

    A start's noise is shared by its loads; each run adds its own. Where noise hides one side, the range that names both
    is the answer, and nothing is named. A wrong answer is the empty interval (inf, 0).
    """
    starts = draw.normal(0, start_sd, (2, pairs, 1)) + draw.normal(0, ROUND_SD, (2, pairs, len(LEVELS)))
    noise = starts[1] - starts[0]
    ranges, crossings = load_ranges(
        [
            Level(load, {f"p-{pair}": log_ratio(load, crossing) + noise[pair, at] for pair in range(pairs)})
            for at, load in enumerate(LEVELS)
        ]
    )
    named = [(each.low, each.high) for each in crossings if each.above == WINNER]
    both = [(each.first, each.last) for each in ranges if len(each.best) > 1]
    found = [each for each in named or both if each[0] <= crossing <= each[1]]
    return *(found[0] if found else (math.inf, 0.0)), bool(named)
