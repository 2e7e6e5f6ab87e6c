"""What every engine must do, shown with the real one where it runs here, otherwise with doubles of its releases."""

from __future__ import annotations

import json
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest
from engines import jobs
from engines.conftest import MODEL

from servelab.core.errors import ConfigError
from servelab.engines.options import OPTIONS as VOCABULARY
from servelab.measure.load import LoadPlan
from servelab.measure.load.sender import send_load
from servelab.measure.server import CandidateFailed, EnvironmentFault, Killed

ROOT = Path(__file__).parents[2]
SAMPLES = {int: 1, bool: True, str: "auto", float: 0.5}


def tree_of(server):
    """All processes of a running server."""
    root = psutil.Process(server.process.pid)
    return [root, *root.children(recursive=True)]


def load(server, requests, body, number):
    """One round of load by our own client, as rows."""
    plan = LoadPlan(
        base_url=server.base_url,
        endpoint="completions",
        model=MODEL,
        requests=requests,
        round=number,
        timeout_s=120,
        body=dict(body),
    )
    return send_load(plan)[0].to_pylist()


def test_serves_exact_lengths_on_loopback_forgets_prompts_and_leaves_nothing(each_release, cached_path, tmp_path):
    server = each_release.server(tmp_path / "server.log")
    body = each_release.engine.request_body
    trees = []
    try:
        server.start()
        trees += tree_of(server)
        open_ports = {
            connection.laddr
            for process in trees
            for connection in process.net_connections("inet")
            if connection.status == psutil.CONN_LISTEN
        }
        port = int(server.base_url.rpartition(":")[2])
        first = load(server, cached_path, body, 0)
        again = load(server, cached_path, body, 1)
        server.check_serving()
        server.reset_caches()
        trees += tree_of(server)
        forgotten = load(server, cached_path, body, 2)
    finally:
        server.stop()
    assert {address.ip for address in open_ports} == {"127.0.0.1"}
    assert port in {address.port for address in open_ports}
    records = first + again + forgotten
    assert [record["error"] for record in records] == [None] * 6
    assert {record["input_tokens"] for record in records} == {160}
    assert {record["output_tokens"] for record in records} == {8}
    if any(record["cached_tokens"] is not None for record in records):
        assert all(record["cached_tokens"] for record in again), "this engine is known to keep prompts"
        assert not any(record["cached_tokens"] for record in first + forgotten)
    assert [process for process in trees if process.is_running()] == []


def test_only_an_unknown_flag_is_refused(each_release, tmp_path):
    """Beside it stand the flags of every option the engine says it has, so each of them is known."""
    engine, version = each_release.engine, each_release.environment.version
    if engine.checks_arguments:  # it has no flags, and nothing is started with a setting it has not
        with pytest.raises(ConfigError, match=f"engine {engine.name} has no setting `no-such-flag`"):
            each_release.server(tmp_path / "server.log", arguments={"no-such-flag": None})
        return
    names = [name for name in engine.option_flags if is_flag(engine, name, version)]
    options = {name: SAMPLES[VOCABULARY[name].kind] for name in names}
    server = each_release.server(tmp_path / "server.log", options=options, arguments={"no-such-flag": None})
    with pytest.raises(CandidateFailed) as failure:
        server.start()
    assert failure.value.reason == "unsupported_argument"
    assert failure.value.message.endswith(": --no-such-flag (exit code 2)")


def is_flag(engine, option, version):
    """Whether a release has an option as a flag of its own, not as part of another's or of a file."""
    value = SAMPLES[VOCABULARY[option].kind]
    try:
        engine.check_options({option: value}, version)
        return any(part.startswith("-") for part in engine.option_flags[option](value, {}))
    except ConfigError:
        return False


def test_missing_model(each_release, tmp_path):
    server = each_release.server(tmp_path / "server.log", model_path=tmp_path / "no-such-model")
    with pytest.raises(EnvironmentFault) as failure:
        server.start()
    assert failure.value.reason == "missing_model", failure.value.log_lines
    assert "no-such-model" in "\n".join(failure.value.log_lines)


def test_a_run_is_measured_into_six_files(installed, requests_path, tmp_path):
    run = installed.run(installed.spec(rounds=2), requests_path)
    output = jobs.folder(tmp_path / "runs", run)
    output.mkdir(parents=True)
    (output / "left-behind").touch()
    code, said = jobs.measure(tmp_path / "runs", [run])
    assert code == 0, said
    assert [path.name for path in tmp_path.glob("runs/set-aside/*/*")] == ["left-behind"]
    assert sorted(path.name for path in output.iterdir()) == jobs.FILES
    assert {path.name for path in (tmp_path / "runs").iterdir()} == {output.name, "set-aside"}
    status = jobs.status(tmp_path / "runs", run)
    assert (status["outcome"], status["rounds"], status["requests"], status["success_rate"]) == ("ok", 2, 8, 1.0)
    assert pq.read_table(output / "requests.parquet")["round"].to_pylist() == [0] * 4 + [1] * 4
    assert json.loads((output / "spec.json").read_text()) == run.spec.model_dump(mode="json")
    manifest = json.loads((output / "manifest.json").read_text())
    assert manifest["engine"] == {"name": installed.engine.name, "version": run.spec.engine.version}
    assert manifest["devices"][0]["name"]


def test_a_failed_candidate_is_a_result(installed, requests_path, tmp_path):
    run = installed.run(installed.spec(arguments={"no-such-flag": None}), requests_path)
    code, said = jobs.measure(tmp_path, [run])
    assert code == 0, said
    status = jobs.status(tmp_path, run)
    assert (status["outcome"], status["reason"], status["rounds"]) == ("failed", "unsupported_argument", 0)
    assert "--no-such-flag" in status["log_lines"][0]
    assert pq.read_table(jobs.folder(tmp_path, run) / "requests.parquet").num_rows == 0


def test_what_an_adapter_renders_must_be_what_was_planned(installed, requests_path, tmp_path):
    spec = installed.spec()
    planned = spec.served.model_copy(update={"command": (*spec.served.command, "--of-older-code")})
    run = installed.run(spec.model_copy(update={"served": planned}), requests_path)
    code, said = jobs.measure(tmp_path, [run])
    assert code == 2
    assert (
        "the code of the adapter or the runtime has changed since this run was planned; run the workflow again" in said
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("line", "ends", "raised"),
    [
        ("RuntimeError: CUDA error: no kernel image is available", "exit 1", EnvironmentFault),
        ("RuntimeError: CUDA error: no kernel image is available", "kill -9 $$", EnvironmentFault),
        ("Exception: Capture cuda graph failed: an illegal memory access", "kill -9 $$", CandidateFailed),
        ("all is well", "kill -9 $$", Killed),
        ("loading", "kill -BUS $$", EnvironmentFault),
    ],
)
def test_whose_fault_an_end_is(doubled, tmp_path, line, ends, raised):
    def enter(command, variables):
        return ["bash", "-c", f'echo "{line}"; {ends}'], variables

    server = doubled.server(tmp_path / "server.log", enter=enter)
    with pytest.raises((CandidateFailed, EnvironmentFault)) as failure:
        server.start()
    assert failure.type is raised
    assert line in str(failure.value) or "BUS" in ends
