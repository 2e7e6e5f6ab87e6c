"""How often a proof is right: coverage, bias, false winners and gains found, with many kinds of noise.

A study here has 3 starts of the baseline and one of each of 20 candidates. The best measured candidate is proved if it
promises more than the margin. Starts take 90 s each, one after the other, with three rounds each. The search is naive
on purpose: it promises far too much, and the proof must not care.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import pytest
from harness import publish

from servelab.search.proof import (
    BASELINE,
    LEAST_ASKED_PERCENT,
    ProofPair,
    ProofVerdict,
    asked_half_width_percent,
    judge_proof,
    looks,
    pair_order,
    pairs_wanted,
)

pytestmark = pytest.mark.bench

STUDIES = 2000
"""Per world and landscape."""
START_S, ROUNDS = 90.0, 3
CANDIDATES, BASELINE_STARTS = 20, 3
FIRST_PAIRS, MOST_PAIRS, MARGIN_PERCENT = 3, 8, 2.0
STARTS = BASELINE_STARTS + CANDIDATES + 2 * MOST_PAIRS

COVERED = (0.93, 0.97)
MOST_BIAS_POINTS = 0.3
MOST_FALSE = 0.05
ERRORS = 3
"""Standard errors of a count that it may miss its target by."""


@dataclass(frozen=True)
class World:
    """What happens to the values of starts; shares of the value."""

    round_cv: float
    start_sd: float
    drift_per_h: float = 0.0
    neighbour: float = 0.0
    """What a neighbour takes for ten minutes, every forty on average."""
    slow: float = 0.0
    """What 12 % of the starts are slower by."""
    second: float = 0.0
    """What the second start of a pair is slower by."""
    winner_noise: float = 1.0
    """Noise of the candidates' starts, in multiples of the baseline's."""

    def factors(self, draw: np.random.Generator) -> np.ndarray:
        """[studies, STARTS, 2]: what multiplies the true value in each start, if it is the baseline's or another's."""
        shape = (STUDIES, STARTS)
        sides = []
        for times in (1.0, self.winner_noise):
            rounds = draw.normal(1, times * self.round_cv, (*shape, ROUNDS)).mean(axis=2)
            sides.append(rounds * np.exp(draw.normal(0, times * self.start_sd, shape)))
        slow = np.where(draw.random(shape) < 0.12, 1 - self.slow, 1.0)
        return np.stack(sides, axis=2) * (slow * self._drift(draw) * self._neighbour(draw))[..., None]

    def _drift(self, draw: np.random.Generator) -> np.ndarray:
        hours = (np.arange(STARTS) + 0.5) * START_S / 3600
        return 1 + draw.choice([-1, 1], (STUDIES, 1)) * self.drift_per_h * hours

    def _neighbour(self, draw: np.random.Generator) -> np.ndarray:
        begins = np.arange(STARTS) * START_S
        busy = np.zeros((STUDIES, STARTS))
        at = -40_000 + draw.uniform(0, 2400, STUDIES)  # long before, so that the studies begin anywhere
        while self.neighbour and (at < STARTS * START_S).any():
            at = at + draw.exponential(1800, STUDIES)
            overlap = np.minimum(at[:, None] + 600, begins + START_S) - np.maximum(at[:, None], begins)
            busy += np.clip(overlap, 0, None) / START_S
            at = at + 600
        return 1 - self.neighbour * busy


WORLDS = {f"rounds {cv} %, starts {sd} %": World(cv / 100, sd / 100) for cv in (1, 2, 4, 8) for sd in (0, 1, 2, 5)} | {
    "neighbour takes 10 %, rounds 1 %, starts 0 %": World(0.01, 0.0, neighbour=0.10),
    "neighbour takes 10 %, rounds 2 %, starts 1 %": World(0.02, 0.01, neighbour=0.10),
    "drift of 3 % an hour, rounds 2 %, starts 1 %": World(0.02, 0.01, drift_per_h=0.03),
    "12 % of starts 15 % slower, rounds 1 %, starts 0 %": World(0.01, 0.0, slow=0.15),
    "12 % of starts 15 % slower, rounds 2 %, starts 1 %": World(0.02, 0.01, slow=0.15),
    "12 % of starts 15 % slower, rounds 4 %, starts 2 %": World(0.04, 0.02, slow=0.15),
    "winner 3 times as noisy, rounds 2 %, starts 1 %": World(0.02, 0.01, winner_noise=3.0),
}


def _small(draw: np.random.Generator) -> np.ndarray:
    return draw.normal(0, 0.02, (STUDIES, CANDIDATES))


def _one_helps(gain: float) -> Callable[[np.random.Generator], np.ndarray]:
    def gains(draw: np.random.Generator) -> np.ndarray:
        return np.where(np.arange(CANDIDATES) == 7, gain, np.zeros((STUDIES, 1)))

    return gains


NONE_HELPS = "none helps"
LANDSCAPES = {
    NONE_HELPS: _one_helps(0.0),
    "gains of N(0, 2 %)": _small,
    "one gains 5 %": _one_helps(0.05),
    "one gains 15 %": _one_helps(0.15),
    "one gains 30 %": _one_helps(0.30),
}
"""Name → true gains [studies, candidates]."""


@dataclass
class Counts:
    """What became of studies."""

    studies: int = 0
    proofs: int = 0
    covered: int = 0
    errors: list[float] = field(default_factory=list)
    """Found minus true change of each proof, in points."""
    pairs: list[int] = field(default_factory=list)
    worthwhile: int = 0
    """Proofs of a winner whose true gain exceeds the margin."""
    worthwhile_better: int = 0
    better: int = 0
    better_covered: int = 0
    better_errors: list[float] = field(default_factory=list)

    def add(self, proof: ProofVerdict | None, true_percent: float) -> None:
        """Counts a study."""
        self.studies += 1
        if proof is None:
            return
        change, low, high = proof.change_percent, proof.change_ci95_low_percent, proof.change_ci95_high_percent
        assert change is not None and low is not None and high is not None
        covered = low <= true_percent <= high
        self.proofs += 1
        self.covered += covered
        self.errors.append(change - true_percent)
        self.pairs.append(proof.pairs)
        self.worthwhile += true_percent > MARGIN_PERCENT
        if proof.holds:
            self.worthwhile_better += true_percent > MARGIN_PERCENT
            self.better += 1
            self.better_covered += covered
            self.better_errors.append(change - true_percent)

    def __iadd__(self, other: Counts) -> Counts:
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)
        return self

    def row(self) -> dict[str, object]:
        """A row of the printed tables."""
        return {
            "studies": self.studies,
            "proofs": self.proofs,
            "pairs": _mean(self.pairs),
            "covered": _percent(self.covered, self.proofs),
            "bias": _mean(self.errors),
            "recommended": _percent(self.better, self.studies),
            "covered, recommended": _percent(self.better_covered, self.better),
            "bias, recommended": _mean(self.better_errors),
            "gains over the margin recommended": _percent(self.worthwhile_better, self.worthwhile),
        }


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} % of {whole}" if whole else "–"


def _mean(values: list[float] | list[int]) -> float:
    return float(np.mean(values)) if values else float("nan")


def _study(factors: np.ndarray, gains: np.ndarray) -> tuple[ProofVerdict | None, float]:
    """The proof of one study's winner, None if nothing promised enough, and the winner's true change in percent."""
    baseline = [100 * factor for factor in factors[:BASELINE_STARTS, 0]]
    measured = 100 * (1 + gains) * factors[BASELINE_STARTS : BASELINE_STARTS + CANDIDATES, 1]
    winner = int(measured.argmax())
    true = 100 * float(gains[winner])
    promised = 100 * (float(measured[winner]) / float(np.mean(baseline)) - 1)
    if promised <= MARGIN_PERCENT:
        return None, true

    def pair(number: int) -> ProofPair:
        values = {}
        for position, side in enumerate(pair_order(number)):
            start = BASELINE_STARTS + CANDIDATES + 2 * number + position
            values[side] = float(factors[start, 0] * 100 if side == BASELINE else factors[start, 1] * (100 + true))
        return ProofPair(**values, order=1 if pair_order(number)[0] == BASELINE else -1)

    steps = looks(FIRST_PAIRS, MOST_PAIRS)
    asked = 0.0 if promised < 2 * LEAST_ASKED_PERCENT else asked_half_width_percent(promised)
    level = (math.log(measured[winner]) + float(np.log(baseline).mean())) / 2
    pairs = [pair(number) for number in range(FIRST_PAIRS)]
    while (wanted := pairs_wanted(pairs, asked, steps, [level])) > len(pairs):
        pairs += [pair(number) for number in range(len(pairs), wanted)]
    verdict = judge_proof(pairs, margin_percent=MARGIN_PERCENT, higher_is_better=True, promised_percent=promised)
    return verdict, true


@pytest.fixture(scope="module")
def counts() -> dict[tuple[str, str], Counts]:
    """(world, landscape) → counts."""
    draw = np.random.default_rng(17)
    found = {}
    for world_name, world in WORLDS.items():
        for landscape, true_gains in LANDSCAPES.items():
            cell = found[world_name, landscape] = Counts()
            for factors, gains in zip(world.factors(draw), true_gains(draw), strict=True):
                cell.add(*_study(factors, gains))
    return found


def _sums(counts: dict[tuple[str, str], Counts], part: int) -> dict[str, Counts]:
    sums: dict[str, Counts] = {}
    for key, cell in counts.items():
        sums.setdefault(key[part], Counts())
        sums[key[part]] += cell
    return sums


def _error(share: float, of: int) -> float:
    """So much may a count of `of` differ from its share by chance, `ERRORS` standard errors."""
    return ERRORS * (share * (1 - share) / of) ** 0.5


def test_published_intervals_cover_the_truth_in_every_world(counts):
    cells = [{"world": world, "landscape": name} | cell.row() for (world, name), cell in counts.items()]
    sums = {
        name: [{"of": key} | total.row() for key, total in _sums(counts, part).items()]
        for part, name in enumerate(("Worlds", "Landscapes"))
    }
    tables = {name: pd.DataFrame(rows) for name, rows in ({"Studies": cells} | sums).items()}
    publish("proof-rates", "How often a proof is right", tables)
    for world, total in _sums(counts, 0).items():
        covered = total.covered / total.proofs
        least, most = (share + sign * _error(share, total.proofs) for share, sign in zip(COVERED, (-1, 1), strict=True))
        assert least <= covered <= most, (world, covered)


def test_what_is_found_is_what_is_true_on_average(counts):
    for world, total in _sums(counts, 0).items():
        assert abs(_mean(total.errors)) <= MOST_BIAS_POINTS, (world, _mean(total.errors))


def test_a_candidate_that_changes_nothing_is_not_recommended(counts):
    for (world, landscape), cell in counts.items():
        if landscape == NONE_HELPS:
            assert cell.better <= (MOST_FALSE + _error(MOST_FALSE, cell.studies)) * cell.studies, (world, cell.better)


@pytest.mark.parametrize("world", [f"rounds {cv} %, starts {sd} %" for cv in (1, 2) for sd in (0, 1, 2)])
def test_a_large_gain_takes_three_or_four_pairs(counts, world):
    cell = counts[world, "one gains 30 %"]
    assert _mean(cell.pairs) <= 3.3
    assert cell.worthwhile_better >= 0.99 * cell.worthwhile
