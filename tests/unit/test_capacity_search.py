"""The search for a capacity: which loads it tries, when a load holds, and what it finds."""

from __future__ import annotations

from dataclasses import make_dataclass
from datetime import UTC, datetime

import made_run
import numpy as np
import pyarrow.parquet as pq
import pytest
from made_queue import as_table, served

from servelab.archive.contents import faults_of_run
from servelab.core.identity import run_id
from servelab.core.run_spec import MOST_STEPS, CapacitySpec
from servelab.measure.load import LoadResult, LoadStats
from servelab.measure.outcome import Outcome, check_served, write_run
from servelab.measure.server import CandidateFailed
from servelab.measure.session import search_capacity
from servelab.metrics.capacity import CapacityStep, find_capacity, is_saturated, judge, next_load

RATE = CapacitySpec(of="request_rate", slos={"ttft_ms": {"p99": 1000}})
USERS = CapacitySpec(of="max_concurrency", slos={"ttft_ms": {"p90": 1000}}, highest=64)


def step(load, share, missed=None, ended_by="slo"):
    return CapacityStep(
        load=load,
        requests_per_s=load,
        share_of_limit=share,
        missed=missed or ("too slow" if share > 1 else None),
        ended_by=ended_by if missed or share > 1 else None,
    )


def searched(spec, share_at):
    steps = []
    while (load := next_load(spec, steps)) is not None:
        steps.append(step(load, share_at(load)))
    return steps


@pytest.mark.parametrize("capacity", [1.01, 2.5, 7.3, 40, 999])
def test_a_search_ends_around_the_limit(capacity):
    steps = searched(RATE, lambda load: load / capacity)
    holds = max(each.load for each in steps if each.missed is None)
    misses = min(each.load for each in steps if each.missed)
    assert holds <= capacity < misses <= 1.05 * holds
    assert [each.load for each in steps].count(holds) == 2
    assert len(steps) < MOST_STEPS
    assert find_capacity(RATE, steps).load == pytest.approx(capacity, rel=1e-3)
    assert find_capacity(RATE, steps).text == f"at {misses:g} requests/s too slow"


def test_what_a_load_misses():
    draw = np.random.default_rng(1)
    gaps, work = draw.exponential(1, 800), draw.gamma(2, 0.5, 800)
    assert judge(RATE, 8, served(gaps, work, rate=8)).missed is None
    slow = judge(RATE, 15, served(gaps, work, rate=15))
    assert slow.ended_by == "slo" and slow.missed.startswith("ttft_ms p99 is ") and slow.share_of_limit > 1
    unlimited = CapacitySpec(of="request_rate")
    assert judge(unlimited, 14, served(gaps, work, rate=14)).missed is None
    over = judge(unlimited, 24, served(gaps, work, rate=24))
    assert over.ended_by == "saturated" and over.missed.startswith("requests in flight grew by ")
    long = judge(unlimited, 20, served(gaps[:200], np.full(200, 15), rate=20, slots=200))
    assert long.missed.endswith(" % of all that arrived; each takes 100 % of the time: send more")
    assert judge(unlimited, 20, served(gaps[:200], np.full(200, 4), rate=20, slots=200)).missed is None
    filled = served(gaps[:400], np.full(400, 8), rate=20, slots=400)
    filled["phase"][:200] = "settle"
    assert judge(unlimited, 20, filled).missed is None and judge(unlimited, 20, filled[200:]).missed
    failing = served(gaps, work, rate=8)
    failing["error"][:20] = "HTTP 500"
    assert judge(RATE, 8, failing).missed == "97.5 % of the requests succeeded"
    late = served(gaps, work, rate=8)
    late["started_s"] = late["sent_s"] = 1.2 * late["scheduled_s"]
    assert judge(RATE, 8, late).missed == "the client sent 83 % of the rate"
    assert judge(USERS, 4, served(gaps, work, in_flight=4)).missed is None
    assert judge(USERS, 60, served(gaps, work, in_flight=60)).ended_by == "slo"


@pytest.mark.parametrize(("share", "least", "most"), [(0.5, 0, 2), (0.8, 0, 3), (1.3, 98, 100), (1.1, 30, 100)])
def test_saturation_is_a_trend(share, least, most):
    """Of 100 rounds of 800 requests each; a server with 16 slots and a mean of 1 s a request serves 16/s."""
    draw = np.random.default_rng(7)
    found = sum(
        is_saturated(served(draw.exponential(1, 800), draw.gamma(2, 0.5, 800), rate=16 * share)) for _ in range(100)
    )
    assert least <= found <= most


Inputs = make_dataclass("Inputs", ["spec"])
"""What the search takes of the inputs of a run."""


def made_server(slots=16, crashes_at=float("inf"), seeds=None):
    """Measures a load on a made server; notes the seeds of its arrivals."""

    def send(inputs, outcome):
        protocol, seed = inputs.spec.protocol, inputs.spec.workload.parameters["seed"]
        if seeds is not None:
            seeds.append(seed)
        draw = np.random.default_rng(seed)
        if protocol.request_rate >= crashes_at:
            raise CandidateFailed("crashed", "it ended")
        rows = served(draw.exponential(1, 400), draw.gamma(2, 0.5, 400), rate=protocol.request_rate, slots=slots)
        rows["phase"][:10] = "settle"
        outcome.records.append(as_table(rows))
        outcome.client_rounds.append(LoadStats())

    return send


def measured(spec, slots=16, crashes_at=float("inf")):
    """The outcome of a search on a made server, and the seeds of the arrivals at each step."""
    seeds, outcome = [], Outcome(manifest=made_run.manifest(spec), start_id="a")
    search_capacity(Inputs(spec), outcome, made_server(slots, crashes_at, seeds))
    return outcome, seeds


def of_rates(**changes):
    return made_run.spec(
        capacity={"of": "request_rate", "slos": {"ttft_ms": {"p90": 1000}}},
        protocol={"request_rate": 1, "rounds": 1, "max_concurrency": None},
        objective="capacity_per_s",
        **changes,
    )


def test_a_run_of_a_search_holds_together(tmp_path):
    spec = of_rates()
    outcome, _ = measured(spec)
    folder = tmp_path / run_id(spec)
    folder.mkdir()
    status = write_run(folder, spec, outcome, datetime.now(UTC), job_id="job", accelerator_s=2.0)
    found = find_capacity(spec.capacity, status.steps)
    assert status.is_ok and status.requests == 400 and status.objective_rounds == [found.requests_per_s]
    assert 12 < found.load < 17 and status.steps[found.step].missed is None
    assert pq.read_table(folder / "requests.parquet")["round"].unique().to_pylist() == [0]
    assert pq.read_table(folder / "steps.parquet").num_rows == 400 * len(status.steps)
    assert faults_of_run(folder) == []


def test_a_step_that_is_cut_off_is_above_the_capacity():
    def send(inputs, outcome):
        rate = inputs.spec.protocol.request_rate
        rows = served(np.ones(400), np.full(400, 0.1), rate=rate)
        if rate > 5:
            rows["error"][200:] = "saturated: unfinished"
        outcome.records.append(as_table(rows))
        outcome.client_rounds.append(LoadStats(saturated=rate > 5))
        spec = inputs.spec.model_copy(
            update={"protocol": inputs.spec.protocol.model_copy(update={"saturation_in_flight": 9})}
        )
        check_served(LoadResult(outcome.records[0], outcome.client_rounds[0]), spec)

    spec = of_rates()
    outcome = Outcome(manifest=made_run.manifest(spec))
    search_capacity(Inputs(spec), outcome, send)
    found = find_capacity(spec.capacity, outcome.steps)
    assert found.ended_by == "errors" and 4.5 < found.load <= 5.3
    assert outcome.client_rounds == [LoadStats()]
