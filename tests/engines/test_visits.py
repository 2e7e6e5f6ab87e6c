"""Visits: one server start serves several runs, each is kept as soon as it is done, and a pair has the same devices."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest
from engines import doubles, jobs
from engines.test_faults import serving_tree
from engines.test_kill import below, kill_each
from patience import until

from servelab.machine.lease import lease
from servelab.measure.visits import measure_job

pytestmark = pytest.mark.slow

OUTAGE = 75
RESTARTS = ("llama.cpp", "mindie", "tensorrt-llm")
"""Engines whose caches only a restart empties."""
RESETS = [name for name, played in doubles.RELEASES.items() if "reset_path" in played and name in doubles.NEWEST]
one_double = pytest.mark.parametrize("doubled", RESETS[:1], indirect=True)


@pytest.fixture
def runs_folder(tmp_path) -> Path:
    """Where the runs are, without the locks of devices."""
    (tmp_path / "runs").mkdir()
    return tmp_path / "runs"


def loads(installed, *requests: Path, **spec):
    """Runs of one configuration: a load for each of the files, all different."""
    return [
        installed.run(installed.spec(max_concurrency=number + 1, **spec), path) for number, path in enumerate(requests)
    ]


def stays_up(installed) -> bool:
    """Whether the engine empties its caches without a restart."""
    return installed.engine.name not in RESTARTS


def test_the_loads_of_a_visit_have_one_start(each_engine, requests_path, runs_folder):
    """Where a request empties the caches, the server stays up; where only a restart does, each load has its own."""
    runs = loads(each_engine, requests_path, requests_path)
    code, said = jobs.measure(runs_folder, runs)
    assert code == 0, said
    first, second = (jobs.status(runs_folder, run) for run in runs)
    assert (first["outcome"], second["outcome"]) == ("ok", "ok")
    assert first["job_id"] == second["job_id"]
    folders = [jobs.folder(runs_folder, run) for run in runs]
    assert [sorted(path.name for path in folder.iterdir()) for folder in folders] == [jobs.FILES] * 2
    logs = [(folder / "server.log").read_text(errors="replace") for folder in folders]
    assert [log.count("=== ") for log in logs] == [1, 1]
    assert first["accelerator_s"] >= first["startup_s"], "the start-up is counted in the first run after it"
    if stays_up(each_engine):
        assert first["start_id"] == second["start_id"]
        assert first["startup_s"] == second["startup_s"]
        assert logs[1].startswith(logs[0]), "the log goes on over the visit"
    else:
        assert first["start_id"] != second["start_id"]
    assert sorted(path.name for path in runs_folder.iterdir()) == sorted(
        jobs.folder(runs_folder, run).name for run in runs
    )


@pytest.mark.parametrize("installed", ["llama.cpp"], indirect=True)
def test_a_pair_has_one_lease_and_its_order(installed, requests_path, runs_folder):
    winner = loads(installed, requests_path, requests_path, start="proof-1", options={"context_length": 2048})
    baseline = loads(installed, requests_path, requests_path, start="proof-1")
    code, said = jobs.measure(runs_folder, winner, baseline)
    assert code == 0, said
    statuses = [jobs.status(runs_folder, run) for run in [*winner, *baseline]]
    assert {status["outcome"] for status in statuses} == {"ok"}
    assert len({status["job_id"] for status in statuses}) == 1
    assert [status["start_id"] for status in statuses[:2]] != [status["start_id"] for status in statuses[2:]]
    manifests = [
        json.loads((jobs.folder(runs_folder, run) / "manifest.json").read_text()) for run in [*winner, *baseline]
    ]
    assert len({json.dumps([manifest["devices"], manifest["placement"]]) for manifest in manifests}) == 1
    served = [line.rsplit("run ", 1)[1].split(":")[0] for line in said.splitlines() if line.startswith("run ")]
    assert served == [jobs.folder(runs_folder, run).name for run in [*winner, *baseline]]


def job_in_thread(runs: Path, *visits):
    """A job that runs in a thread, and where its statuses will be."""
    statuses = []
    thread = threading.Thread(target=lambda: statuses.extend(measure_job(jobs.job(*visits), runs)))
    thread.start()
    return thread, statuses


@one_double
def test_a_server_killed_in_the_second_load(doubled, requests_path, endless_path, runs_folder):
    """It was killed from outside, so that the load gets another start; killed there again, it has failed, and the visit
    goes on."""
    first, second, _ = runs = loads(doubled, requests_path, endless_path, requests_path)
    measuring, statuses = job_in_thread(runs_folder, runs)
    while measuring.is_alive() and not jobs.folder(runs_folder, second).exists():
        tree = []
        with contextlib.suppress(psutil.NoSuchProcess):
            tree = serving_tree() if jobs.folder(runs_folder, first).exists() else []
        kill_each(tree[:1])
        time.sleep(0.05)
    measuring.join()
    assert [status.outcome for status in statuses] == ["ok", "failed", "ok"]
    assert (statuses[1].reason, statuses[1].attempts) == ("crashed", 2)
    assert len({status.start_id for status in statuses}) == 3
    assert len({status.job_id for status in statuses}) == 1


@one_double
def test_an_outage_in_the_second_load_loses_that_load_only(doubled, requests_path, endless_path, runs_folder):
    first, second = runs = loads(doubled, requests_path, endless_path)
    with subprocess.Popen(jobs.command(runs_folder, runs), cwd=jobs.ROOT, stderr=subprocess.DEVNULL) as measuring:
        me = psutil.Process(measuring.pid)
        until(lambda: jobs.folder(runs_folder, first).exists() and below(me, "servelab.measure.load"), "a second load")
        measuring.send_signal(signal.SIGTERM)
        assert measuring.wait(60) == OUTAGE
    assert json.loads((runs_folder.parent / "logs/measure/any.json").read_bytes()) == {"kind": "outage", "reason": None}
    assert [path.name for path in runs_folder.iterdir()] == [jobs.folder(runs_folder, first).name]
    kept = jobs.status(runs_folder, first)
    with lease("cpu", 1):
        pass
    # the same visit again, with a load that ends: only what is missing is measured
    resumed = [first, doubled.run(second.spec, requests_path)]
    code, said = jobs.measure(runs_folder, resumed)
    assert code == 0, said
    assert f"{kept['run_id']}: another workflow has measured it; its result is kept" in said
    assert jobs.status(runs_folder, first) == kept
    missing = jobs.status(runs_folder, second)
    assert missing["outcome"] == "ok"
    assert missing["start_id"] != kept["start_id"]


@one_double
def test_a_disk_that_is_full_during_a_run_is_an_outage(doubled, requests_path, runs_folder):
    (run,) = loads(doubled, requests_path)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(runs_folder)], check=False)
    if mounted.returncode:
        pytest.skip("only root may mount a small file system")
    try:
        code, said = jobs.measure(runs_folder, [run])
        assert (code, list(runs_folder.iterdir())) == (OUTAGE, []), said
        assert "no space left" in said.casefold() and not serving_tree()
        subprocess.run(["mount", "-o", "remount,size=4m", str(runs_folder)], check=True)
        code, said = jobs.measure(runs_folder, [run])
        assert code == 0, said
        assert jobs.status(runs_folder, run)["outcome"] == "ok"
    finally:
        subprocess.run(["umount", str(runs_folder)], check=True)


@one_double
def test_no_server_is_started_for_a_complete_visit(doubled, requests_path, runs_folder):
    runs = loads(doubled, requests_path)
    assert jobs.measure(runs_folder, runs)[0] == 0
    gone = runs[0].model_copy(update={"environment": runs_folder / "gone.json", "model": runs_folder / "gone.json"})
    code, said = jobs.measure(runs_folder, [gone])
    assert code == 0, said
    assert "serving" not in said


@one_double
def test_a_configuration_that_does_not_start_is_not_started_for_each_load(doubled, requests_path, runs_folder):
    runs = loads(doubled, requests_path, requests_path, arguments={"no-such-flag": None})
    code, said = jobs.measure(runs_folder, runs)
    assert code == 0, said
    first, second = (jobs.status(runs_folder, run) for run in runs)
    assert (first["reason"], second["reason"]) == ("unsupported_argument",) * 2
    assert first["start_id"] == second["start_id"]
    assert "is not started again" in said


@one_double
def test_two_jobs_of_one_visit_make_one_start(doubled, requests_path, runs_folder):
    """The loads of one visit are not split between two workflows, even if they want them in another order."""
    runs = loads(doubled, requests_path, requests_path, requests_path)
    wanted = [runs, runs[::-1], runs[1:]]
    makers = [subprocess.Popen(jobs.command(runs_folder, each), cwd=jobs.ROOT) for each in wanted]
    assert [maker.wait(300) for maker in makers] == [0, 0, 0]
    by_job = {}
    for run in runs:
        by_job.setdefault(jobs.status(runs_folder, run)["job_id"], []).append(run)
    assert sorted(map(len, by_job.values())) in ([3], [1, 2])
    assert len(list(runs_folder.iterdir())) == 3


HOG = "import os; parent = os.getppid()\nwhile os.getppid() == parent: pass"
"""It ends with the tests, however these end."""


@one_double
def test_a_disturbed_run_is_measured_again_and_says_so(doubled, steady_path, runs_folder):
    """Others are on every CPU all the time; the double needs little of one, so that it waits little."""
    run = doubled.run(doubled.spec(duration_s=3.0, max_concurrency=2, max_others_cpu_percent=0.01), steady_path)
    hogs = [subprocess.Popen([sys.executable, "-c", HOG]) for _ in range(os.cpu_count() or 1)]
    try:
        code, said = jobs.measure(runs_folder, [run])
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()
    assert code == 0, said
    status = jobs.status(runs_folder, run)
    assert (status["outcome"], status["attempts"], status["server_starts"]) == ("ok", 3, 1), said
    assert "server and client waited" in status["disturbed"] and status["others_percent"] > 0
    assert said.count("measured again (disturbed)") == 2
    assert set(pq.read_table(jobs.folder(runs_folder, run) / "requests.parquet")["round"].to_pylist()) == {0}
