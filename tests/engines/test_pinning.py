"""A run on single cores: its server stays on them, and the run says which it had."""

from __future__ import annotations

import os

import psutil
import pytest

from servelab.machine.lease import lease
from servelab.measure.session import Session


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core is left to the load client")
def test_a_server_stays_on_its_cores(installed, requests_path, tmp_path):
    inputs = installed.run(installed.spec(device="cpu-cores"), requests_path).inputs()
    with lease("cpu-cores", 1) as leased:
        session = Session(inputs, leased, tmp_path, 300)
        try:
            outcome = session.measure(inputs, tmp_path)
            assert outcome.failure is None
            server = psutil.Process(session.server.pid)
            threads = [thread.id for process in (server, *server.children(True)) for thread in process.threads()]
            assert {frozenset(os.sched_getaffinity(thread)) for thread in threads} == {leased.cpus}
            assert len(threads) > 1
        finally:
            session.stop()
    placement = outcome.manifest.placement
    assert placement.server_cpus == sorted(leased.cpus)
    assert placement.client_cpus == sorted(leased.client_cpus)
    assert not leased.cpus & leased.client_cpus
    assert os.sched_getaffinity(0) > leased.cpus
