"""Several servers of one configuration: what each gets, and how the failure of one fails all."""

from __future__ import annotations

import json
import re
import shutil
import threading

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from engines import doubles, jobs
from engines.test_kill import below, kill_each
from patience import until

from servelab.engines.balancers import BALANCERS
from servelab.measure.visits import measure_job
from servelab.metrics.tables import schemas

CLIENTS = [balancer.name for balancer in BALANCERS if not balancer.is_process]
REAL = [*(("llama.cpp", name) for name in BALANCERS.names()), ("vllm", "round_robin")]
one_double = pytest.mark.parametrize("doubled", ["vllm-0.17.1"], indirect=True)
assert "vllm-0.17.1" in doubles.NEWEST


def measured(installed, requests, folder, **spec):
    """A run of two servers: its status, its manifest, and the tokens that each server generated."""
    run = installed.run(installed.spec(replicas=2, **spec), requests)
    (folder / "runs").mkdir()
    code, said = jobs.measure(folder / "runs", [run])
    assert code == 0, said
    kept = jobs.folder(folder / "runs", run)
    assert {"server.log", "server1.log"} <= {path.name for path in kept.iterdir()}
    telemetry = pq.read_table(kept / "telemetry.parquet").to_pandas()
    tokens = telemetry[telemetry["metric"] == "server_generation_tokens_total"].groupby("device")["value"].agg(list)
    ended = [int(values[-1]) for _, values in sorted(tokens.items())]  # counted from 0: the server is new
    return jobs.status(folder / "runs", run), json.loads((kept / "manifest.json").read_text()), ended


def ports(manifest) -> set[str]:
    return {re.search(r"--port[ =](\d+)", " ".join(server["command"]))[1] for server in manifest["replicas"]}


@one_double
@pytest.mark.parametrize("balancer", CLIENTS)
def test_requests_are_spread(doubled, requests_path, tmp_path, balancer):
    """Four requests and a warm-up for each server, of 8 tokens each."""
    status, manifest, tokens = measured(doubled, requests_path, tmp_path, balancer=balancer)
    assert (status["outcome"], status["server_starts"], status["requests_failed"]) == ("ok", 1, 0)
    assert tokens == [24, 24]
    assert len(ports(manifest)) == 2
    assert manifest["balancer"]["name"] == balancer


@one_double
def test_the_death_of_one_fails_the_run(doubled, endless_path, tmp_path):
    """It may have been killed from outside, so the run is measured on a second start; then it is a result."""
    (tmp_path / "runs").mkdir()
    run = doubled.run(doubled.spec(replicas=2, round_timeout_s=300), endless_path)
    statuses = []
    job = jobs.job([run])
    measuring = threading.Thread(target=lambda: statuses.extend(measure_job(job, tmp_path / "runs")))
    measuring.start()
    seen: set[int] = set()

    def servers():
        """The two servers' main processes of a start that was not seen yet, once the load client runs."""
        wardens = [each for each in below(psutil.Process(), "warden.py") if below(each, "serve.py")]
        started = [warden.children()[0] for warden in wardens if "sender" not in " ".join(warden.cmdline())]
        new = [each for each in started if each.pid not in seen]
        return new if len(new) == 2 and below(psutil.Process(), "servelab.measure.load.sender") else []

    for _ in range(2):
        both = until(servers, "two servers under load")
        seen |= {each.pid for each in both}
        kill_each(both[1:])
    measuring.join()
    assert [(each.outcome, each.reason, each.attempts) for each in statuses] == [("failed", "crashed", 2)]
    assert statuses[0].message.startswith("server 1 of 0 to 1: ")
    assert not below(psutil.Process(), "serve.py")


@pytest.mark.slow
@pytest.mark.parametrize(("installed", "balancer"), REAL, indirect=["installed"])
def test_real_servers_behind_each_balancer(installed, requests_path, tmp_path, balancer):
    program = BALANCERS.get(balancer).command((1, 2), [3, 4], tmp_path)[:1]
    if program and shutil.which(program[0]) is None:
        pytest.skip(f"{program[0]} is not installed here")
    rows = pq.read_table(requests_path).to_pylist()
    texts = [row | {"prompt": "What is a server? " * 4, "prompt_token_ids": None} for row in rows]
    pq.write_table(pa.Table.from_pylist(texts, schema=schemas.WORKLOAD_REQUESTS), tmp_path / "texts.parquet")
    status, manifest, tokens = measured(installed, tmp_path / "texts.parquet", tmp_path, balancer=balancer)
    assert (status["outcome"], status["requests_failed"]) == ("ok", 0), status
    assert len(ports(manifest)) == 2
    assert all(tokens) or "router" in balancer, tokens  # these choose by prefix
    assert manifest["balancer"]["command"][:1] == program
