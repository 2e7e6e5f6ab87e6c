"""The start-up of a configuration: over all server starts, and over cold and warm ones, with intervals."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import made_run
import pytest

from servelab.metrics.tables import schemas
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
