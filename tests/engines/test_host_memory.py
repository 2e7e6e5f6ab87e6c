"""A server that the kernel kills for want of host memory: a finding on a machine, no result in a job."""

from __future__ import annotations

import itertools
import threading

import pytest
from engines import doubles
from engines.test_faults import serving_tree
from patience import until

from servelab import server as serving
from servelab.errors import Outage
from servelab.identity import run_id
from servelab.measure import measure
from servelab.session import RunInputs

pytestmark = pytest.mark.parametrize("doubled", doubles.NEWEST[:1], indirect=True)


@pytest.fixture
def run(doubled, endless_path, tmp_path, monkeypatch):
    """A run whose server is killed under its load, with one more kill on the kernel's count each time it is read."""
    kills = itertools.count()
    monkeypatch.setattr(serving, "_oom_kills", lambda: next(kills))
    spec = doubled.spec(round_timeout_s=600)
    inputs = RunInputs(
        spec=spec,
        environment=doubled.environment,
        client_environment=None,
        model_json=doubled.model_json,
        requests=endless_path,
    )
    killing = threading.Thread(target=lambda: until(serving_tree, "a load on the server", 300)[0].kill())
    killing.start()
    yield inputs, tmp_path / "runs" / run_id(spec)
    killing.join()


def test_on_a_machine_it_is_a_finding(run, monkeypatch):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    status = measure(*run)
    assert (status["outcome"], status["reason"]) == ("failed", "out_of_memory")
    assert "meanwhile the kernel killed a process for want of memory" in status["message"]


def test_in_a_job_it_is_no_result(run, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    with pytest.raises(Outage, match=r"Slurm job 17 has too little host memory: .*signal 9"):
        measure(*run)
    assert list(run[1].parent.iterdir()) == []
