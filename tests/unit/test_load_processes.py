"""The load client as processes: several that share a round, what ends a round early, what they cost and say."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from servers.made_load import plan_for

from servelab.core.errors import Outage
from servelab.measure.clients import CLIENTS
from servelab.measure.load.board import LoadProgress
from servelab.measure.load.sender import send_load


@pytest.mark.parametrize("processes", [1, 2])
def test_duration_leaves_out_what_was_not_sent(processes, tmp_path, server):
    plan = plan_for(tmp_path, server, ["normal"] * 400, duration_s=0.4, max_concurrency=4, processes=processes)
    records, stats, _ = send_load(plan)
    assert stats.requests_not_sent == 400 - len(records) > 0
    assert set(records["error"].to_pylist()) == {None}
    assert max(records["started_s"].to_pylist()) < 0.4
    assert not stats.saturated


@pytest.mark.parametrize("processes", [1, 2])
def test_saturation_ends_the_round(processes, tmp_path, server):
    plan = plan_for(tmp_path, server, ["a stall"] * 60, request_rate=200.0, saturation_in_flight=9, processes=processes)
    records, stats, _ = send_load(plan)
    assert stats.saturated
    assert len(records) == 60
    assert {error.split(":")[0] for error in records["error"].to_pylist()} == {"saturated"}
    begun = sum(time is not None for time in records["started_s"].to_pylist())
    assert 9 <= begun <= 9 + processes


@pytest.mark.parametrize("settings", [{}, {"max_concurrency": 7}, {"request_rate": 300.0}])
def test_processes_together_send_each_request_once(settings, tmp_path, stub, server):
    plan = plan_for(tmp_path, server, [f"normal {index}" for index in range(60)], processes=3, **settings)
    records, stats, _ = send_load(plan)
    assert stats.processes == 3
    assert set(records["error"].to_pylist()) == {None}
    assert records["request_index"].to_pylist() == list(range(60))
    assert len({body["messages"][0]["content"] for body in stub.bodies}) == len(stub.bodies) == 60
    assert stub.peak_concurrency <= settings.get("max_concurrency", 60)
    assert min(records["started_s"].to_pylist()) >= 0


def children_of(pid: int) -> list[psutil.Process]:
    return [child for child in psutil.Process(pid).children() if child.is_running()]


@pytest.fixture
def stalled_client(tmp_path, server):
    plan = plan_for(tmp_path, server, ["a stall"] * 4, processes=2)
    command = CLIENTS.get("servelab").command(plan, tmp_path, Path(sys.executable))
    client = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    while len(children_of(client.pid)) < 2 or client.poll() is not None:
        assert client.poll() is None
    yield client
    client.kill()
    client.wait()
    client.stderr.close()


def test_a_load_process_that_dies_is_an_error_that_names_it(stalled_client):
    victim = children_of(stalled_client.pid)[1]
    victim.kill()
    _, said = stalled_client.communicate(timeout=60)
    assert stalled_client.returncode == 75
    assert f"load process 2 of 2 (pid {victim.pid}) died: exit code -9" in said


def test_a_load_process_that_dies_before_the_start_is_named(tmp_path, server, monkeypatch):
    def kill_one(*_):
        victim = multiprocessing.active_children()[0]
        victim.kill()
        victim.join()

    monkeypatch.setattr(LoadProgress, "start", kill_one)
    with pytest.raises(Outage, match=r"load process \d of 2 \(pid \d+\) died: exit code -9"):
        send_load(plan_for(tmp_path, server, ["normal"] * 4, processes=2))


def test_load_processes_die_with_their_parent(stalled_client):
    children = children_of(stalled_client.pid)
    stalled_client.kill()
    _, alive = psutil.wait_procs(children, timeout=60)
    assert not alive


def test_too_few_open_files_is_said_before_the_first_request(tmp_path, stub, server):
    plan = plan_for(tmp_path, server, ["normal"] * 300, max_concurrency=300)
    command = CLIENTS.get("servelab").command(plan, tmp_path, Path(sys.executable))
    ended = subprocess.run(
        ["prlimit", "--nofile=200:200", *command], capture_output=True, text=True, timeout=120, check=False
    )
    assert ended.returncode == 2
    assert "300 requests in flight need 364 open files" in ended.stderr
    assert not stub.heads
