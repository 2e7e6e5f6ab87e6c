"""The job that `scripts/measure.py` is given: one clear line for each mistake in it."""

from __future__ import annotations

import json
import os
from pathlib import Path

from made_run import spec as made_spec

from servelab.core.run_spec import SENT, SERVED, RunSpec
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


def test_a_pair_of_visits_with_two_loads_each_is_read():
    job = parse_job(
        of([run(), run({"max_concurrency": 3})], [run(options={"a": 1}), run({"rounds": 9}, options={"a": 1})])
    )
    assert [len(visit) for visit in job.visits] == [2, 2]
    assert len({visit_id(run.spec) for visit in job.visits for run in visit}) == 2
    assert job.visits[0][0].client_environment is None


def test_each_part_of_a_specification_is_served_or_sent():
    assert RunSpec.model_fields.keys() == SERVED | SENT and not SERVED & SENT


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
