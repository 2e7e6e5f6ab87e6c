"""How often the winner map's interval of a crossing contains the load at which two configurations really cross."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from harness import publish
from unit.planted_crossing import LEVELS, study_at

pytestmark = pytest.mark.bench

STUDIES = 200
"""For each number of pairs and each noise, each with a crossing of its own."""
LEAST = 0.95
PAIRS = (3, 5, 8)
START_SDS = (0.005, 0.01, 0.02, 0.05)


def test_planted_crossings_are_found():
    draw = np.random.default_rng(20)
    rows = []
    for pairs in PAIRS:
        for start_sd in START_SDS:
            crossings = np.exp(draw.uniform(np.log(2), np.log(128), STUDIES))
            found = [study_at(draw, float(crossing), pairs, start_sd) for crossing in crossings]
            within = [low <= at <= high for (low, high, _), at in zip(found, crossings, strict=True)]
            named = [inside for inside, (_, _, is_named) in zip(within, found, strict=True) if is_named]
            ratios = [high / low for low, high, is_named in found if is_named and high]
            rows.append(
                {
                    "pairs": pairs,
                    "starts differ by, %": 100 * start_sd,
                    "studies": STUDIES,
                    "within": sum(within),
                    "crossing named": len(named),
                    "of these within": sum(named),
                    "highest / lowest load, median": float(np.median(ratios)),
                }
            )
    publish("winner-map", f"Planted crossings, measured at {LEVELS} in flight", {"Studies": pd.DataFrame(rows)})
    for row in rows:
        assert row["within"] >= LEAST * STUDIES, row
