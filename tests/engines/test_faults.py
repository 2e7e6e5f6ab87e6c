"""What goes wrong with a server is told for what it is, within seconds, and nothing of it is left."""

from __future__ import annotations

import contextlib
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import psutil
import pytest
from engines import jobs
from engines.test_kill import below, kill_each, until
from patience import rest_after

from servelab.machine.lease import lease
from servelab.measure import server as serving
from servelab.measure.run_files import RunStatus
from servelab.measure.server import CandidateFailed
from servelab.measure.visits import measure_job

pytestmark = pytest.mark.slow

ONE_PROCESS = {"llama.cpp"}
"""Engines whose servers have no workers."""


@contextlib.contextmanager
def leaving_nothing(each_engine, log: Path, **changes) -> Iterator[serving.Server]:
    """A server whose warden holds a leased device; in the end no process of it is left and the device is free."""
    before = set(psutil.Process().children())
    with lease("cpu", 1) as leased:
        server = each_engine.server(log, keep_open=leased.descriptors, **changes)
        try:
            yield server
        finally:
            server.stop()
    assert set(psutil.Process().children()) - before == set()
    with lease("cpu", 1):
        pass


def within_64_gib(command, variables):
    """So that what is asked for is refused at once, not granted by a kernel that runs out of memory later."""
    return ["sh", "-c", 'ulimit -v 67108864; exec "$@"', "sh", *command], variables


def test_kv_cache_too_large(each_engine, tmp_path):
    with (
        leaving_nothing(each_engine, tmp_path / "server.log", enter=within_64_gib, **each_engine.too_much) as server,
        pytest.raises(CandidateFailed) as failure,
    ):
        server.start()
    assert failure.value.reason == "out_of_memory", failure.value
    assert failure.value.log_lines


def test_never_ready(each_engine, tmp_path):
    patience_s = 1.0 if each_engine.stalls else 0.05
    with (
        leaving_nothing(
            each_engine, tmp_path / "server.log", variables=each_engine.stalls, startup_timeout_s=patience_s
        ) as server,
        pytest.raises(CandidateFailed) as failure,
    ):
        server.start()
    assert (failure.value.reason, server.starts) == ("never_healthy", 0)
    assert failure.value.message.startswith(f"not healthy within {patience_s:g} s")


@pytest.fixture
def stranger() -> Iterator[int]:
    """Port of a server of somebody else's, which calls itself healthy whatever it is asked."""

    class Healthy(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Healthy)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


def take_ports(monkeypatch, port: int, times: int) -> None:
    """The next so many leases have that port: somebody has taken it between the look at it and the start."""
    real, left = serving.lease_ports, iter(range(times))

    def lease_ports(host, count=1):
        leased = real(host, count)
        return leased if next(left, None) is None else replace(leased, ports=(port, *leased.ports[1:]))

    monkeypatch.setattr(serving, "lease_ports", lease_ports)


def test_another_port_is_tried_where_one_is_busy(each_engine, stranger, tmp_path, monkeypatch):
    take_ports(monkeypatch, stranger, 1)
    with leaving_nothing(each_engine, tmp_path / "server.log") as server:
        server.start()
        assert not server.base_url.endswith(f":{stranger}")
        assert server.starts == 1
    assert (tmp_path / "server.log").read_text().count("=== ") == 2


def serving_tree() -> list[psutil.Process]:
    """The server's processes, its main process first, once a load client is connected to it; empty before."""
    me = psutil.Process()
    connected = [client for client in below(me, "servelab.measure.load") if client.net_connections("tcp")]
    wardens = [warden for warden in below(me, "warden.py") if "servelab.measure.load.sender" not in warden.cmdline()]
    if not connected or not wardens:
        return []
    return sorted(wardens[0].children(recursive=True), key=lambda process: process.create_time())


def main_process(tree: list[psutil.Process], each_engine) -> psutil.Process:
    return tree[0]


def largest_worker(tree: list[psutil.Process], each_engine) -> psutil.Process:
    """The worker with the most memory."""
    workers = [process for process in tree[1:] if " ".join(process.cmdline()).startswith(each_engine.workers)]
    return max(workers, key=lambda process: process.memory_info().rss)


@pytest.fixture
def victim(request, each_engine) -> Callable:
    """Which process is killed; an engine of one process has no worker."""
    if request.param is not main_process and each_engine.engine.name in ONE_PROCESS:
        pytest.skip("it is one process")
    return request.param


def killing(*victims: Callable) -> pytest.MarkDecorator:
    """A test for each of these victims."""
    return pytest.mark.parametrize("victim", victims, indirect=True)


@pytest.fixture(autouse=True)
def hasty(request, monkeypatch) -> None:
    """A double ends a second after it lost a worker, or never: nobody waits longer for it, nor for one that is stopped
    to end."""
    for name in {"each_engine", "doubled"} & set(request.fixturenames):
        if request.getfixturevalue(name).stalls:
            monkeypatch.setattr(serving, "_EXIT_S", 2.0)
            monkeypatch.setattr(serving, "_RECOVERY_S", 3.0)
            monkeypatch.setattr(serving, "Supervised", partial(serving.Supervised, grace_s=1.0))


def trees_under_load(measuring: threading.Thread) -> Iterator[list[psutil.Process]]:
    """The server's processes at each start, once it is under load, until the job ends."""
    while True:
        tree: list[psutil.Process] = []
        while measuring.is_alive() and not tree:
            began = time.monotonic()
            with contextlib.suppress(psutil.NoSuchProcess):
                tree = serving_tree()
            if not tree:
                rest_after(began, 0.05)
        if not tree:
            return
        yield tree
        until(lambda: not tree[0].is_running(), "the end of its main process")  # noqa: B023


def measured_while_one_is_killed(each_engine, requests: Path, folder: Path, victim: Callable, **spec) -> RunStatus:
    """The status of a run with nothing of it left, if at each start a process of its server is killed under load."""
    run, statuses, trees = each_engine.run(each_engine.spec(round_timeout_s=600, **spec), requests), [], []
    one_process: set[bool] = set()
    before = set(psutil.Process().children())
    measuring = threading.Thread(target=lambda: statuses.extend(measure_job(jobs.job([run]), folder)))
    measuring.start()
    try:
        for tree in trees_under_load(measuring):
            trees += tree
            victim(tree, each_engine).kill()
            one_process.add(len(tree) == 1)
    finally:
        kill_each(serving_tree())
        measuring.join()
    assert [process for process in trees if process.is_running()] == []
    assert set(psutil.Process().children()) - before == set()
    with lease("cpu", 1):
        pass
    assert RunStatus.read(jobs.folder(folder, run) / "status.json") == statuses[0]
    assert one_process == {each_engine.engine.name in ONE_PROCESS}
    return statuses[0]


@killing(main_process, largest_worker)
def test_killed_under_load(victim, each_engine, endless_path, tmp_path):
    status = measured_while_one_is_killed(each_engine, endless_path, tmp_path, victim)
    assert (status.outcome, status.reason) == ("failed", "crashed"), status
    if victim is main_process:
        assert re.match(r"signal 9; last log line: |.* \(signal 9\)$", status.message), status.message
    assert status.attempts == 2, "somebody else may have killed it: it gets a second start"
    assert status.log_lines


@pytest.mark.parametrize(
    ("number", "victim"), [(signal.SIGKILL, largest_worker), (signal.SIGTERM, main_process)], indirect=["victim"]
)
def test_killed_once_from_outside_is_no_result(number, victim, each_engine, steady_path, tmp_path):
    run = each_engine.run(each_engine.spec(duration_s=3.0, max_concurrency=2), steady_path)
    statuses: list[RunStatus] = []
    measuring = threading.Thread(target=lambda: statuses.extend(measure_job(jobs.job([run]), tmp_path)))
    measuring.start()
    victim(next(trees_under_load(measuring)), each_engine).send_signal(number)
    measuring.join()
    assert (statuses[0].outcome, statuses[0].reason) == ("ok", None), statuses[0]


def worker_of_a_stopped_server(tree: list[psutil.Process], each_engine) -> psutil.Process:
    """The worker, after all other processes are stopped."""
    worker = largest_worker(tree, each_engine)
    for process in tree:
        if process != worker and process.is_running():
            process.suspend()
    return worker


@killing(worker_of_a_stopped_server)
def test_worker_killed_unnoticed(victim, each_engine, endless_path, tmp_path):
    """The main process cannot notice it: it is stopped. Without it no request would end before the round's limit."""
    status = measured_while_one_is_killed(each_engine, endless_path, tmp_path, victim)
    assert (status.outcome, status.reason) == ("failed", "crashed"), status
    assert re.match(r"its worker \S+ ended, but the server did not", status.message), status.message
