"""Engine `endpoint`: a server that already runs is visited and measured, and left as it is."""

from pathlib import Path

import pytest
from servers.stub_server import MODEL, StubServer

from servelab.bench.load import texts, write_requests
from servelab.core.errors import ConfigError, Outage
from servelab.core.identity import lock_sha256, run_id
from servelab.core.run_spec import RunSpec
from servelab.engines.adapters import ENGINES
from servelab.engines.runtimes import RUNTIMES
from servelab.engines.server_identity import render_served, serve_of
from servelab.measure.clients import CLIENTS, client_of
from servelab.measure.inputs import JobRun, MeasuringJob
from servelab.measure.run_files import RunManifest, RunStatus
from servelab.measure.visits import measure_job
from servelab.report.measured_runs import MeasuredRuns

ROOT = Path(__file__).parents[2]
ENDPOINT = ENGINES.get("endpoint")
LOCK = ROOT / "envs/endpoint.none.yaml"
KEY = "-".join(("sk", "never", "to", "be", "seen", "7713"))  # in one piece no archive would take this file
ASKED = {"max_concurrency": 2, "rounds": 1, "warmup_requests": 0, "max_others_cpu_percent": 100}


@pytest.fixture
def made(tmp_path, monkeypatch):
    """Makes a run of a server at a URL, as a rule would."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "scripts"))
    environment = tmp_path / "env"
    environment.mkdir()
    RUNTIMES.get("none").build(ENDPOINT, LOCK, environment)
    write_requests(tmp_path / "requests.parquet", texts(1, [20] * 4), texts(2, [20]), 6)
    (tmp_path / "weights").touch()
    source = {"kind": "path", "path": "/models/m", "revision": "1"}
    model = '{"path": "weights", "format": "gguf", "tokenizer": "weights", "source": %s}'
    (tmp_path / "model.json").write_text(model % str(source).replace("'", '"'))

    def run(url, start="search-0", client="servelab", **arguments):
        arguments = {"url": url, "model": MODEL} | {name.replace("_", "-"): value for name, value in arguments.items()}
        spec = RunSpec(
            engine={
                **{"name": "endpoint", "version": "unknown", "runtime": "none"},
                "environment_sha256": lock_sha256(LOCK),
            },
            model={"id": "m", "variant": "base", "source": source, "format": "gguf"},
            arguments=arguments,
            served=render_served(ENDPOINT, serve_of(ENDPOINT, "m", {}, arguments, 8), "none", "elsewhere"),
            start=start,
            hardware={"accelerator": "NVIDIA H100", "device": "elsewhere", "count": 8},
            workload={
                **{"kind": "random_text", "parameters": {"endpoint": "chat", "seed": 1}},
                **{"tokenizer": source, "generator_version": "1"},
            },
            objective="total_tokens_per_s",
            client=client_of(CLIENTS.get("servelab")).model_copy(update={"name": client}),
            protocol=ASKED,
        )
        return JobRun(
            spec=spec,
            environment=environment / "environment.json",
            model=tmp_path / "model.json",
            requests=tmp_path / "requests.parquet",
        )

    return run


def measured(folder, *runs):
    """Measures visits of a run each; the status and the manifest of each."""
    statuses = measure_job(MeasuringJob(visits=[[run] for run in runs]), folder)
    return [(each, RunManifest.read(folder / each.run_id / "manifest.json")) for each in statuses]


def test_two_visits_of_a_server_that_runs_before_and_after(made, tmp_path):
    stub = StubServer(longest=4096, version="1.2.3")
    with stub.running() as url:
        runs = [made(url, start=f"proof-{number}", request_fields='{"cache_prompt": false}') for number in range(2)]
        (first, manifest), (second, _) = measured(tmp_path / "runs", *runs)
        with StubServer().running() as other:
            assert run_id(made(other).spec) != run_id(made(url).spec)
    assert [first.outcome, second.outcome] == ["ok", "ok"]
    assert first.start_id != second.start_id and first.server_starts is None and first.startup_s is None
    assert manifest.command == [] and manifest.endpoint.asked.version == "1.2.3"
    assert set(manifest.endpoint.not_known) == {
        *("its options and hardware", "restarts", "what its caches held", "other users")
    }
    assert manifest.endpoint.process_seen  # the stub is a thread of this process
    assert all(body["cache_prompt"] is False and body["ignore_eos"] is True for body in stub.bodies)
    assert {body["model"] for body in stub.bodies} == {MODEL}
    assert len(stub.bodies) == 2 * 4
    assert RunStatus.read(tmp_path / "runs" / first.run_id / "status.json").seal is not None
    runs = MeasuredRuns(tmp_path / "runs")
    said = runs.visited([first.run_id, second.run_id])
    assert said.startswith(f"url {url}, model {MODEL}, ") and "version 1.2.3" in said
    assert "already ran and was not started here. Not known: its options and hardware," in said
    assert "over visits, not over server starts" in said and runs.visited([]) == ""


def test_a_key_is_sent_and_written_nowhere(made, tmp_path, monkeypatch):
    stub = StubServer(key=KEY)
    with stub.running() as url:
        run = made(url, api_key_env="MY_SERVER")
        with pytest.raises(ConfigError, match="the environment variable MY_SERVER"):
            measured(tmp_path / "runs", run)
        monkeypatch.setenv("MY_SERVER", KEY)
        ((status, _),) = measured(tmp_path / "runs", run)
        with pytest.raises(ConfigError, match="need `client: servelab`"):
            made(url, client="guidellm", api_key_env="MY_SERVER").inputs()._check_reach()
    assert status.outcome == "ok" and status.requests_failed == 0
    assert not any(KEY.encode() in file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())


def test_a_server_that_does_not_answer_is_no_finding(made, tmp_path):
    with StubServer().running() as url:
        pass
    with pytest.raises(Outage, match="no answer"):
        measured(tmp_path / "runs", made(url))
    assert not list((tmp_path / "runs").glob("*/status.json"))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, "needs the argument `url`"),
        ({"url": "ftp://a"}, "not the address of a server"),
        ({"url": "http://u:p" + "@a"}, "credentials"),
        ({"url": "http://a", "urls": "b"}, "no argument `urls`"),
        ({"url": "http://a", "api-key-env": "sk-12 34"}, "never the key itself"),
        ({"url": "http://a", "request-fields": "[1]"}, "JSON object"),
    ],
)
def test_wrong_arguments(arguments, expected):
    with pytest.raises(ConfigError, match=expected):
        ENDPOINT.command(serve_of(ENDPOINT, "m", {}, arguments, 1))
