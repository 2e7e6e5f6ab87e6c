"""Planted bottlenecks are named, from counters as engines and devices give them."""

from types import SimpleNamespace

import pandas as pd
import pytest

from servelab.report.bottlenecks import counters_of, counters_text, limited_by
from servelab.report.comparison_section import limits_by_side
from servelab.study.search_keys import Objective
from servelab.study.study import LAST_STAGES

BUSY = {"gpu_utilization_percent": [97, 99], "requests_waiting": [0, 0], "kv_cache_usage_fraction": [0.4, 0.5]}
LONG = {"ttft_ms": 900.0, "e2el_ms": 9000.0}
QUEUED = {"ttft_ms": 700.0, "e2el_ms": 1000.0}
PLANTED = {
    "KV cache full": (BUSY | {"kv_cache_usage_fraction": [0.9, 0.99], "preemptions_total": [3, 17]}, LONG),
    "KV cache full on one of two cores": (BUSY | {"preemptions_total": [0, 5]}, LONG),
    "batch full": (BUSY | {"requests_waiting": [40, 60]}, LONG),
    "batch full, so that requests queue": (BUSY | {"requests_waiting": [9, 9], "requests_running": [32, 32]}, QUEUED),
    "client-bound": (BUSY | {"gpu_utilization_percent": [30, 36]}, LONG),
    "host-bound": (BUSY | {"gpu_utilization_percent": [30, 36], "requests_running": [64, 63]}, LONG),
    "prefill-bound": (BUSY, QUEUED),
    "prefill-bound, and so requests wait": (BUSY | {"requests_waiting": [3, 9], "requests_running": [8, 32]}, QUEUED),
    "drafts refused": (BUSY, LONG | {"draft_acceptance_percent": 21.0}),
    "decode-bound": (BUSY, LONG),
    "": ({"power_w": [300.0, 310.0]}, LONG),
}


@pytest.mark.parametrize("cause", PLANTED)
def test_what_limits_a_run_is_named(cause):
    readings, means = PLANTED[cause]
    rows = [
        {"run_id": "r", "metric": metric, "value": float(value)}
        for metric, values in readings.items()
        for value in values
    ]
    others = [{"run_id": "other", "metric": "requests_waiting", "value": 500.0}]
    found = counters_of("r", pd.DataFrame(rows + others), {("r", name): value for name, value in means.items()}, 64)
    said = limited_by(found).partition(":")[0]
    assert cause.startswith(said) and bool(said) == bool(cause)
    if cause == "KV cache full":
        assert found["preempted"] == 14 and "KV cache up to 99.0 %" in counters_text(found)


@pytest.mark.parametrize(("limit", "sent"), [(64, {"in_flight": 16}), ("inf", {})])
def test_a_side_is_compared_with_its_part_of_the_load(limit, sent):
    study = SimpleNamespace(objective=Objective(on="w", load_per="node"), loads={"w": {"max_concurrency": limit}})
    study.protocol, on = None, {"accelerators": 2, "accelerators_per_node": 8}
    row = {"stage": LAST_STAGES[0], "workload": "w", "outcome": "ok", "candidate": "c", "run_id": "r", **on}
    nothing = pd.DataFrame(columns=["run_id", "metric", "value", "round", "statistic", "mean"])
    assert limits_by_side(study, pd.DataFrame([row]), nothing, nothing) == {"c": sent}
