"""What a proof can find before it costs anything: its rule, simulated with starts like those of past studies."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from servelab.core.errors import ServelabError
from servelab.metrics.tables import schemas
from servelab.metrics.tables.io import read_table
from servelab.search.decide import PRIOR, StartNoise, pooled_noise
from servelab.search.proof import ProofPair, looks, pairs_for_promise, proved_change
from servelab.study.project import StudySummary
from servelab.study.study import Study

_PROOFS = 200
"""Simulated for each gain: a share is within 7 points."""
_GAINS = (3.0, 5.0, 10.0)


class Power(NamedTuple):
    """What becomes of the proof of a true gain."""

    proved: float
    """Share of the proofs that recommend it."""
    pairs: float
    """Pairs that they take on average."""


@lru_cache
def power(gain_percent: float, sd_percent: float, first: int, most: int, within: float | None, margin: float) -> Power:
    """The power of a proof of a gain that the search promises as it is, with starts that scatter by `sd_percent`."""
    draw, sd, proved, taken = random.Random(1), sd_percent / 100, 0, 0  # noqa: S311 - a simulation
    for _ in range(_PROOFS):
        pairs: list[ProofPair] = []
        wanted = first
        while len(pairs) < wanted:
            base, winner = draw.gauss(0, sd), math.log1p(gain_percent / 100) + draw.gauss(0, sd)
            pairs.append(ProofPair(math.exp(base), math.exp(winner), 1 if len(pairs) % 2 == 0 else -1))
            if len(pairs) == wanted:
                wanted = pairs_for_promise(pairs, gain_percent, within, looks(first, most))
        change = proved_change(pairs)
        proved += change.low is not None and change.low > 0 and change.value > margin
        taken += len(pairs)
    return Power(proved / _PROOFS, taken / _PROOFS)


def power_text(study: Study, noise: StartNoise, gains: Sequence[float] = _GAINS, of: str = "a gain") -> str:
    """`starts scatter by 1.5 % (as measured): a gain of 3 % with 78 % in 7.2 pairs, 5 % with 97 % in 4.1 is proved`."""
    keys, margin = study.proof, study.objective.margin_percent
    found = [
        (gain, power(gain, round(noise.sd_percent, 1), keys.pairs, keys.most_pairs, keys.within_percent, margin))
        for gain in gains
        if gain > margin
    ]
    parts = [f"{gain:.3g} % with {100 * each.proved:.0f} % in {each.pairs:.1f} pairs" for gain, each in found]
    known = "assumed" if noise == PRIOR else "as measured"
    text = f"starts scatter by {noise.sd_percent:.1f} % ({known})"
    return f"{text}: {of} of {', '.join(parts)} is proved" if parts else f"{text}: no gain exceeds the margin"


def past_noise(study: Study, results: Path) -> StartNoise:
    """The noise between server starts of all studies in `results` on the same accelerator, by their tables."""
    return pooled_noise(_past_starts(study, results))


def _past_starts(study: Study, results: Path) -> Iterator[list[float]]:
    seen = set()
    for file in sorted(results.glob("studies/*/stages/*/table.parquet")):
        try:
            described = StudySummary.read(file.parents[2] / "study.json")
            table = read_table(file, schemas.STAGE_TABLE)
        except ServelabError:  # of another version
            continue
        if described.hardware.accelerator != study.hardware.accelerator:
            continue
        for runs, values in zip(table["run_ids"], table["start_values"], strict=True):
            if runs is not None and len(values) > 1 and min(values) > 0 and tuple(runs) not in seen:
                seen.add(tuple(runs))
                yield [float(value) for value in values]
