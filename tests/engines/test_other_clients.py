"""The load clients of others, really run: on llama.cpp as a study would, and on a server that fails requests."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from engines import jobs
from engines.conftest import build_environment

from servelab.core.identity import lock_sha256
from servelab.engines.runtimes import read_environment
from servelab.measure.clients import CLIENTS, version_in_identity
from servelab.metrics.tables import schemas

ROOT = Path(__file__).parents[2]
OTHERS = [client.name for client in CLIENTS if client.lock]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=OTHERS)
def client_json(request):
    """`environment.json` of each client in turn."""
    lock = ROOT / CLIENTS.get(request.param).lock
    output = ROOT / f"results/envs/{request.param}-{lock_sha256(lock)[:12]}/environment.json"
    if not output.exists():
        build_environment(request.param, lock, output)
    return output


def write_requests(path: Path, prompts: list[str]) -> Path:
    rows = [
        {"request_index": index, "phase": phase, "prompt": f"{prompt} {phase}", "input_tokens": 9, "output_tokens": 6}
        for phase in ("warmup", "measured")
        for index, prompt in enumerate(prompts)
    ]
    pq.write_table(pa.Table.from_pylist(rows, schema=schemas.WORKLOAD_REQUESTS), path)
    return path


@pytest.mark.parametrize(("endpoint", "rounds", "warmup_requests"), [("chat", 2, 1), ("completions", 1, 0)])
@pytest.mark.parametrize("installed", ["llama.cpp"], indirect=True)
def test_measures_a_run(installed, client_json, endpoint, rounds, warmup_requests, tmp_path):
    """A warm-up is a run of the client, as a round is, and some take half a minute to load their libraries."""
    environment = read_environment(client_json)
    spec = installed.spec(rounds=rounds, warmup_requests=warmup_requests, max_concurrency=2).model_dump()
    spec["workload"]["parameters"]["endpoint"] = endpoint
    spec["client"] = {
        "name": environment.tool,
        "version": version_in_identity(CLIENTS.get(environment.tool), environment.version),
        "environment_sha256": environment.lock_sha256,
    }
    spec = type(installed.spec()).model_validate(spec)
    requests = write_requests(tmp_path / "requests.parquet", ["Name a river.", "Count to ten.", "Say hello.", "Sing."])
    run = installed.run(spec, requests, client_json)
    code, said = jobs.measure(tmp_path / "runs", [run])
    assert code == 0, said
    status, output = jobs.status(tmp_path / "runs", run), jobs.folder(tmp_path / "runs", run)
    assert (status["outcome"], status["requests"], status["requests_failed"]) == ("ok", 4 * rounds, 0), status
    records = pq.read_table(output / "requests.parquet").to_pylist()
    assert {record["output_tokens"] for record in records} == {6}
    assert [record["round"] for record in records] == [each for each in range(rounds) for _ in range(4)]
