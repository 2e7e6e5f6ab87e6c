"""Servers of every engine: real ones in real environments, with the demo's model, and process doubles of the rest.

What is there already of environments and the model is used; what is missing is made.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from engines import doubles

from servelab.core.identity import content_id, lock_sha256
from servelab.core.run_spec import RunSpec
from servelab.core.yaml_file import read_yaml
from servelab.engines.adapters import ENGINES, Engine
from servelab.engines.balancers import planned_balancer
from servelab.engines.runtimes import Environment, read_environment
from servelab.engines.server_identity import render_served, serve_of
from servelab.engines.server_to_start import Serve
from servelab.measure.clients import CLIENTS
from servelab.measure.inputs import JobRun
from servelab.measure.server import Enter, Server
from servelab.metrics.tables import schemas

ROOT = Path(__file__).parents[2]
SLOW = {"vllm"}
HERE = [name for name in ENGINES.names() if (ROOT / f"envs/{name}.lock.txt").exists()]
"""Engines that any machine can run: the others need an accelerator, so their locks are named by a study."""
GATE = "test_a_run_is_measured_into_six_files[vllm]"
"""The one start of vLLM that `.ci/run` makes; the others are left to `make nightly`."""
ARGUMENTS: dict[str, dict[str, int | None]] = {
    "llama.cpp": {"threads": 1},
    "vllm": {"enforce-eager": None, "kv-cache-memory-bytes": 1 << 30, "enable-prompt-tokens-details": None},
}
"""What an engine needs to run well beside others, and to report how much it took from a cache."""
MODEL = "SmolLM2-135M-Instruct"
OPTIONS = {"context_length": 4096, "max_num_seqs": 4}
TOO_MUCH: dict[str, dict[str, dict[str, int | None]]] = {
    "llama.cpp": {"options": {**OPTIONS, "context_length": 1 << 20}},
    "vllm": {"arguments": {**ARGUMENTS["vllm"], "kv-cache-memory-bytes": 1 << 48}},
}
"""Fields of `Serve` for a KV cache that is refused at once: what a kernel grants in parts it may kill for later."""


@dataclass(frozen=True)
class Installed:
    """An engine with its environment and a model it serves."""

    engine: Engine
    environment_json: Path
    model_json: Path
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of each start."""
    too_much: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """What to change for a KV cache that does not fit, by field of `Serve`."""
    workers: tuple[str, ...] = ("",)
    """Beginnings of its workers' command lines."""
    stalls: Mapping[str, str] = field(default_factory=dict)
    """Environment variables with which it is not ready for long; none where its start is slow anyway."""

    @property
    def environment(self) -> Environment:
        return read_environment(self.environment_json)

    def server(
        self,
        log: Path,
        *,
        variables: Mapping[str, str] | None = None,
        startup_timeout_s: float = 300,
        keep_open: list[int] | None = None,
        enter: Enter = lambda command, variables: (command, variables),
        **changes: Any,
    ) -> Server:
        """A server that is not started yet; `changes` are fields of `Serve`."""
        model = json.loads(self.model_json.read_text())
        serve = {
            "python": self.environment.python,
            "model_path": (self.model_json.parent / model["path"]).absolute(),
            "model_name": MODEL,
            "port": 0,
            "options": OPTIONS,
            "arguments": self.arguments,
            "folder": log.parent,
        }
        return Server(
            self.engine,
            Serve(**{**serve, **changes}),
            variables=variables or {},
            log=log,
            startup_timeout_s=startup_timeout_s,
            keep_open=keep_open or [],
            enter=enter,
        )

    def spec(
        self,
        *,
        start: str = "search-0",
        options: Mapping[str, Any] = OPTIONS,
        arguments: Mapping[str, Any] | None = None,
        environment_variables: Mapping[str, str] | None = None,
        device: str = "cpu",
        replicas: int = 1,
        balancer: str = "round_robin",
        **protocol,
    ) -> RunSpec:
        """A run on the `requests` fixtures' rows."""
        model = json.loads(self.model_json.read_text())
        arguments = self.arguments if arguments is None else arguments
        serve = serve_of(self.engine, MODEL, options, arguments, 1)
        front = planned_balancer(balancer, replicas)
        served = render_served(self.engine, serve, self.environment.runtime, device, front)
        content = {
            "engine": {
                "name": self.engine.name,
                "version": self.environment.version,
                "runtime": self.environment.runtime,
                "environment_sha256": self.environment.lock_sha256,
            },
            "model": {
                "id": MODEL,
                "variant": "base",
                "source": model["source"],
                "format": model["format"],
                "conversion": model.get("conversion"),
            },
            "options": options,
            "arguments": arguments,
            "environment_variables": environment_variables or {},
            "served": served.model_dump(),
            "start": start,
            "hardware": {"accelerator": "cpu", "device": device, "count": 1, "replicas": replicas},
            "workload": {
                "kind": "random",
                "parameters": {"endpoint": "completions", "seed": 1},
                "tokenizer": model["source"],
                "generator_version": "test",
            },
            "objective": "total_tokens_per_s",
            "client": {"name": "servelab", "version": CLIENTS.get("servelab").version},
            "protocol": {"warmup_requests": 1, "rounds": 1, "max_others_cpu_percent": 100, **protocol},
        }
        return RunSpec.model_validate(content)

    def run(self, spec: RunSpec, requests: Path, client_environment: Path | None = None) -> JobRun:
        """A run as a part of a job."""
        return JobRun(
            spec=spec,
            environment=self.environment_json,
            client_environment=client_environment,
            model=self.model_json,
            requests=requests,
        )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the one start of vLLM that `.ci/run` makes."""
    for item in items:
        if item.name == GATE:
            item.add_marker(pytest.mark.gate)


def make(rule: str, python: str = sys.executable, params: tuple[str, ...] = (), **files: dict[str, str]) -> None:
    """Runs the function of a rule, `<script>.<function>`, with its `input`, `output` and `wildcards`."""
    script, name = rule.split(".")
    subprocess.run([python, f"scripts/{script}.py", name, f"files={json.dumps(files)}", *params], cwd=ROOT, check=True)


def build_environment(tool: str, lock: Path, environment_json: Path) -> None:
    """Builds the environment of a lock."""
    files = {"input": {"lock": str(lock)}, "output": {"environment": str(environment_json)}}
    make("environments.build_environment", **files, wildcards={"tool": tool})


def install(name: str) -> Installed:
    """An engine by name; what is missing of its environment and the model is made."""
    engine = ENGINES.get(name)
    lock = ROOT / f"envs/{engine.name}.lock.txt"
    environment_json = ROOT / f"results/envs/{engine.name}-{lock_sha256(lock)[:12]}/environment.json"
    if not environment_json.exists():
        build_environment(engine.name, lock, environment_json)
    model = read_yaml(ROOT / "config/studies/cpu-smollm2.yaml")["model"]
    source = json.dumps(model["source"])
    folder = ROOT / "results/models" / content_id(model["source"])
    if not (folder / "model.json").exists():
        make("models.download_model", params=(f"source={source}",), output={"model": str(folder / "model.json")})
    if model["format"] not in engine.model_formats:
        converted = folder.with_name(f"{folder.name}-{engine.model_formats[0]}")
        if not (converted / "model.json").exists():
            python = read_environment(environment_json).python
            files = {"input": {"model": str(folder / "model.json")}, "output": {"model": str(converted / "model.json")}}
            make("models.convert_model", str(python), **files)
        folder = converted
    return Installed(
        engine, environment_json, folder / "model.json", ARGUMENTS.get(name, {}), too_much=TOO_MUCH.get(name, {})
    )


def double(release: str, folder: Path) -> Installed:
    """The process double of a release, made in that folder."""
    played = doubles.RELEASES[release]
    flag = played.get("reports_cached_with")
    return Installed(
        ENGINES.get(played["engine"]),
        doubles.environment(release, folder),
        doubles.model(folder / "models"),
        {flag.removeprefix("--"): None} if flag else {},
        too_much={"options": {**OPTIONS, "context_length": played["longest_context"] + 1}},
        workers=tuple(played["workers"]),
        stalls=doubles.STALLS,
    )


_REAL = [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in HERE]


@pytest.fixture(scope="session", params=_REAL)
def installed(request: pytest.FixtureRequest) -> Installed:
    """Every engine that runs here, in turn."""
    return install(request.param)


def _subject(name: str, folders: pytest.TempPathFactory) -> Installed:
    return double(name, folders.mktemp(name)) if name in doubles.RELEASES else install(name)


@pytest.fixture(scope="session", params=[*_REAL, *doubles.RELEASES])
def each_release(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Every engine: real where it runs here, otherwise the double of each of its releases."""
    return _subject(request.param, tmp_path_factory)


@pytest.fixture(scope="session", params=[*_REAL, *doubles.NEWEST])
def each_engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The same with one release of each engine."""
    return _subject(request.param, tmp_path_factory)


@pytest.fixture(scope="session", params=doubles.NEWEST)
def doubled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The double of one release of each engine that has one."""
    return _subject(request.param, tmp_path_factory)


def _requests(path: Path, count: int, input_tokens: int, output_tokens: int) -> Path:
    draw = Random(0)
    rows = []
    for phase, rows_of_phase in (("warmup", 2), ("measured", count)):
        for index in range(rows_of_phase):
            ids = [draw.randrange(1000, 40000) for _ in range(input_tokens)]
            lengths = {"input_tokens": input_tokens, "output_tokens": output_tokens}
            rows.append({"request_index": index, "phase": phase, "prompt": None, "prompt_token_ids": ids, **lengths})
    pq.write_table(pa.Table.from_pylist(rows, schema=schemas.WORKLOAD_REQUESTS), path)
    return path


@pytest.fixture(autouse=True)
def own_leases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Device locks of each test's own: nothing is measured here, so it need not wait for a run of somebody else."""
    monkeypatch.setenv("SERVELAB_LOCKS", str(tmp_path))


@pytest.fixture(scope="session")
def requests_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few short requests."""
    return _requests(tmp_path_factory.mktemp("requests") / "requests.parquet", 4, 16, 8)


@pytest.fixture(scope="session")
def cached_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with prompts that are longer than a block of any engine's cache."""
    return _requests(tmp_path_factory.mktemp("cached") / "requests.parquet", 2, 160, 8)


@pytest.fixture(scope="session")
def steady_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Requests that keep a server busy for many seconds, each for less than one."""
    return _requests(tmp_path_factory.mktemp("steady") / "requests.parquet", 400, 16, 40)


@pytest.fixture(scope="session")
def endless_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Requests that keep a server busy for longer than any test looks at it."""
    return _requests(tmp_path_factory.mktemp("endless") / "requests.parquet", 400, 16, 2000)
