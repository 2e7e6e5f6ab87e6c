"""Places of made runs: stage tables whose runs were measured before and after a driver upgrade."""

from __future__ import annotations

import pandas as pd

from servelab.measure.run_files import PlaceFacts
from servelab.results.checks import place_columns

BEFORE = PlaceFacts(accelerator="NVIDIA H100 80GB HBM3", driver="550.54.15", runtime="CUDA 12.4", kernel="6.1")
AFTER = BEFORE.model_copy(update={"driver": "570.86.10", "runtime": "CUDA 12.8"})
UPGRADE = "driver 550.54.15 ({}), 570.86.10 ({}); runtime CUDA 12.4 ({}), CUDA 12.8 ({})"


def upgrade(before: int, after: int) -> str:
    """What is said of so many runs before the upgrade and after it."""
    counts = [f"{count} run{'' if count == 1 else 's'}" for count in (before, after)]
    return UPGRADE.format(*counts, *counts)


def put_places(table: pd.DataFrame, places: dict[str, list[PlaceFacts | None]]) -> pd.DataFrame:
    """The stage table with places of each candidate's runs; of a candidate's further runs it is its last place."""
    found = []
    for row in table.to_dict("records"):
        given = places.get(row["candidate"], [BEFORE])
        runs = len(row["run_ids"])
        found.append(place_columns([*given, *[given[-1]] * runs][:runs]))
    return table.assign(**{name: [each[name] for each in found] for name in ("run_places", "places")})
