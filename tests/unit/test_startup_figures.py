"""The start-up of a configuration: over all server starts, and over cold and warm ones, with intervals."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import made_run
import pandas as pd
import pytest

from servelab.metrics.tables import schemas
from servelab.report.measured_runs import startup_lines
from servelab.results.parse import Start, startup_columns

STUDY = cast(Any, SimpleNamespace(objective=SimpleNamespace(on="chat")))


def columns(*starts: tuple[float | None, float | None]) -> dict[str, float | None]:
    """From (seconds, share of the weights in the page cache) of each server start."""
    statuses = [made_run.status(startup_s=seconds, weights_cached_share=share) for seconds, share in starts]
    return startup_columns([Start(cast(Any, None), status, {}) for status in statuses])


def test_each_group_has_its_mean_and_interval() -> None:
    found = columns((40.0, 0.0), (44.0, 0.05), (9.0, 1.0), (11.0, 0.95), (20.0, 0.5), (30.0, None), (None, 1.0))
    assert found["startup_s"] == pytest.approx((40 + 44 + 9 + 11 + 20 + 30) / 6)
    assert found["startup_cold_s"] == 42 and found["startup_warm_s"] == 10
    assert found["startup_warm_s_ci95_low"] == pytest.approx(10 - 12.7062, rel=1e-4)  # t(0.975, 1) · 1
    assert found["startup_cold_s_ci95_high"] == pytest.approx(42 + 2 * 12.7062, rel=1e-4)
    assert set(found) <= set(schemas.STAGE_TABLE.names)


def test_a_line_for_each_side_says_which_starts_are_known() -> None:
    row = dict.fromkeys(schemas.STAGE_TABLE.names) | {"stage": "confirm", "workload": "chat"}
    base = row | {"candidate": "baseline"} | columns((41.0, 0.0), (9.0, 1.0), (9.0, 1.0))
    winner = row | {"candidate": "winner"} | columns((12.0, 0.4))
    never = row | {"candidate": "winner", "workload": "other"} | columns((None, 1.0))
    assert startup_lines(STUDY, pd.DataFrame([base, winner, never])) == [
        "Baseline: start-up cold 41.0 s; warm 9.00 s (95 % interval 9.00 to 9.00).",
        "Optimized: start-up 12.0 s; whether its weights were in the page cache is not known, or only some were.",
    ]
