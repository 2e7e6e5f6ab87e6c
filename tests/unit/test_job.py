"""The job that `scripts/measure.py` is given: one clear line for each mistake in it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from made_run import spec as made_spec

from servelab.core.errors import ConfigError
from servelab.core.identity import run_id
from servelab.core.run_spec import SENT, SERVED, CapacitySpec, RunSpec
from servelab.measure.inputs import parse_job, visit_id
from servelab.measure.run_folder import job_folder

JOB_ID = "0123456789abcdef" * 2
FILES = {"environment": "e.json", "model": "m.json", "requests": "r.parquet"}


def run(protocol=None, **changes):
    """A run of a job, with changes of its specification."""
    made = made_spec()
    changes["protocol"] = made.protocol.model_copy(update=protocol or {})
    return {"spec": made.model_copy(update=changes).model_dump(mode="json"), **FILES}


def of(*visits) -> str:
    return json.dumps({"visits": visits})


def other_device():
    hardware = made_spec().hardware.model_copy(update={"device": "nvidia"})
    return run(hardware=hardware)


def test_a_pair_of_visits_with_two_loads_each_is_read():
    job = parse_job(
        of([run(), run({"max_concurrency": 3})], [run(options={"a": 1}), run({"rounds": 9}, options={"a": 1})])
    )
    assert [len(visit) for visit in job.visits] == [2, 2]
    assert len({visit_id(run.spec) for visit in job.visits for run in visit}) == 2
    assert job.visits[0][0].client_environment is None


def test_a_visit_serves_every_kind_of_load():
    """Several points, a search for capacity and questions: all of a start, whatever is sent."""
    searched = CapacitySpec(of="request_rate")
    kinds = [run(), run({"max_concurrency": 3}), run(capacity=searched), run(keeps_answers=True, slos={"ttft_ms": 9.0})]
    kinds += [run(capacity=searched, incumbent_capacity=4.0), run(unless_saturated=True, objective="tpot_ms")]
    (visit,) = parse_job(of(kinds)).visits
    assert len(visit) == len(kinds)


def test_each_part_of_a_specification_is_served_or_sent():
    assert RunSpec.model_fields.keys() == SERVED | SENT and not SERVED & SENT


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", ["--job", "JSON"]),
        (of(), ["--job", "visits", "at least 1"]),
        (of([]), ["--job", "visits.0", "at least 1"]),
        (of([{**run(), "output": "x"}]), ["visits.0.0.output", "unknown key `output`"]),
        (of([{name: value for name, value in run().items() if name != "model"}]), ["`model` is missing"]),
        (of([run(), run()]), [f"run {run_id(made_spec())} is in it twice"]),
        (of([run()], [run()]), [f"run {run_id(made_spec())} is in it twice"]),
        (of([run(), run(options={"a": 1})]), ["is of another configuration or start than", run_id(made_spec())]),
        (of([run(), run(start="search-1")]), ["is of another configuration or start than"]),
        (of([run(), {**run({"rounds": 9}), "model": "other.json"}]), ["has another environment or model"]),
        (of([run()], [other_device()]), ["the same kind of device"]),
    ],
)
def test_one_clear_line(text, words):
    with pytest.raises(ConfigError) as error:
        parse_job(text)
    assert "\n" not in str(error.value)
    for word in words:
        assert word in str(error.value)


def test_what_a_killed_job_left_is_removed_by_the_next(tmp_path: Path):
    host, ended = os.uname().nodename, 4194304 + 1  # above the highest process id
    dead = tmp_path / f".{JOB_ID}.{host}.{ended}.job"
    living, elsewhere = tmp_path / f".{JOB_ID}.{host}.{os.getppid()}.job", tmp_path / f".{JOB_ID}.elsewhere.{ended}.job"
    for folder in (dead, living, elsewhere):
        folder.mkdir()
    with job_folder(tmp_path, "f" * 32) as folder:
        (folder / "server.log").touch()
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
            path.name for path in (folder, living, elsewhere)
        )
    assert not folder.exists()
