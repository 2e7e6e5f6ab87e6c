"""What a job leaves, and what its runs are made of."""

from __future__ import annotations

import os
from pathlib import Path

from servelab.core.run_spec import SENT, SERVED, RunSpec
from servelab.measure.run_folder import job_folder

JOB_ID = "0123456789abcdef" * 2


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
