"""A run on single cores: its server stays on them, and the run says which it had."""

from __future__ import annotations

import os

import psutil
import pytest

from servelab.lease import lease
from servelab.session import RunInputs, Session


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core is left to the load client")
def test_a_server_stays_on_its_cores(installed, requests_path, tmp_path):
    spec = installed.spec()
    spec = spec.model_copy(update={"hardware": spec.hardware.model_copy(update={"device": "cpu-cores"})})
    inputs = RunInputs(
        spec=spec,
        environment=installed.environment,
        client_environment=None,
        model_json=installed.model_json,
        requests=requests_path,
    )
    with lease("cpu-cores", 1) as leased:
        session = Session(inputs, leased, tmp_path)
        try:
            session.round()
            assert session.outcome.failure is None
            server = psutil.Process(session._server.pid)
            threads = [thread.id for process in (server, *server.children(True)) for thread in process.threads()]
            assert {frozenset(os.sched_getaffinity(thread)) for thread in threads} == {leased.cpus}
            assert len(threads) > 1
        finally:
            placement = session.finish().manifest["placement"]
    assert placement["server_cpus"] == sorted(leased.cpus)
    assert placement["client_cpus"] == sorted(leased.client_cpus)
    assert not leased.cpus & leased.client_cpus
    assert os.sched_getaffinity(0) > leased.cpus
