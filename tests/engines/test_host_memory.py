"""A server that the kernel kills for want of host memory: a finding on a machine, no result in a job."""

from __future__ import annotations

import contextlib
import itertools
import threading

import psutil
import pytest
from engines import doubles, jobs
from engines.test_faults import serving_tree
from engines.test_kill import kill_each

from servelab.core.errors import Outage
from servelab.measure import server as serving
from servelab.measure.visits import measure_job

pytestmark = pytest.mark.parametrize("doubled", doubles.NEWEST[:1], indirect=True)


@pytest.fixture
def measuring(doubled, endless_path, tmp_path, monkeypatch):
    """Measures a run whose server is killed under load at each start; each look finds one more kill."""
    kills = itertools.count()
    monkeypatch.setattr(serving, "oom_kills", lambda: next(kills))
    run = doubled.run(doubled.spec(round_timeout_s=600), endless_path)
    ended = threading.Event()

    def kill() -> None:
        while not ended.wait(0.05):
            with contextlib.suppress(psutil.NoSuchProcess):
                kill_each(serving_tree()[:1])

    killing = threading.Thread(target=kill)
    killing.start()
    yield lambda: measure_job(jobs.job([run]), tmp_path / "runs")
    ended.set()
    killing.join()


def test_on_a_machine_it_is_a_finding_if_it_happens_twice(measuring, monkeypatch):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    (status,) = measuring()
    assert (status.outcome, status.reason, status.attempts) == ("failed", "out_of_memory", 2)
    assert "meanwhile the kernel killed a process because memory ran out" in status.message


def test_in_a_job_it_is_no_result(measuring, tmp_path, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    with pytest.raises(Outage, match=r"Slurm job 17 has too little host memory: .*signal 9"):
        measuring()
    assert list((tmp_path / "runs").iterdir()) == []
