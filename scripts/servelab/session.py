"""One run's server on leased devices, and rounds of load on it, one after another."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from servelab import schemas
from servelab.clients import CLIENTS, LoadResult, LoadStats, version_in_identity
from servelab.devices import DEVICES
from servelab.engines import ENGINES, Serve
from servelab.errors import ConfigError, Outage, ServelabError
from servelab.identity import run_id
from servelab.lease import Lease
from servelab.load import LoadPlan
from servelab.manifest import make_manifest
from servelab.metrics import RunData, round_values
from servelab.pinning import pinned
from servelab.processes import Supervised, wait_any
from servelab.run_time import CLIENT_SLACK_S
from servelab.runtimes import RUNTIMES, Environment, Needs
from servelab.server import CandidateFailed, KilledForMemory, Server
from servelab.spec import RunSpec
from servelab.telemetry.sampler import Sampler

_LOG_LINES = 12
_FORWARD_EVERY_S = 2.0


@dataclass(frozen=True)
class RunInputs:
    """What a run is made from."""

    spec: RunSpec
    environment: Environment
    client_environment: Environment | None
    """The load client's; None for the workflow's own."""
    model_json: Path
    requests: Path

    @property
    def client_python(self) -> Path:
        """Interpreter of the load client."""
        return self.client_environment.python if self.client_environment else Path(sys.executable)

    def check(self) -> None:
        """Raises `ConfigError` where environment, client or files are not those that the specification asks for."""
        spec, environment = self.spec, self.environment
        if environment.tool != spec.engine.name or environment.lock_sha256 != spec.engine.environment_sha256:
            raise ConfigError(
                f"the run asks for {spec.engine.name} by another lock than the environment was built from"
            )
        if environment.runtime != spec.engine.runtime:
            found = f"the environment is of runtime {environment.runtime}, the run asks for {spec.engine.runtime}"
            raise ConfigError(f"{found}; give each runtime a description of its own")
        if environment.version != spec.engine.version:
            found = f"the environment has {spec.engine.name} {environment.version}"
            raise ConfigError(f"{found}, the run asks for {spec.engine.version}; raise the study's version or the lock")
        client = self.client_environment
        lock_sha256, release = (client.lock_sha256, client.version) if client else (None, None)
        if lock_sha256 != spec.client.environment_sha256:
            raise ConfigError(
                f"the run asks for client {spec.client.name} by another lock than its environment was built from"
            )
        if version_in_identity(CLIENTS.get(spec.client.name), release) != spec.client.version:
            raise ConfigError(
                f"the run asks for client {spec.client.name} {spec.client.version}, which is not this one"
            )
        for path in (self.model_json, self.requests):
            if not path.is_file():
                raise ConfigError(f"{path}: no such file")


@dataclass
class Outcome:
    """What a run has given so far."""

    records: list[pa.Table] = field(default_factory=list)
    telemetry: list[pa.Table] = field(default_factory=list)
    client_rounds: list[LoadStats] = field(default_factory=list)
    failure: CandidateFailed | None = None
    accelerator_s: float = 0.0
    manifest: dict[str, Any] = field(default_factory=dict)
    startup_s: float | None = None
    server_starts: int = 0

    def table(self) -> pa.Table:
        """Records of all rounds, of `schemas.RUN_REQUESTS`."""
        return pa.concat_tables([schemas.RUN_REQUESTS.empty_table(), *self.records])

    def telemetry_table(self) -> pa.Table:
        """Telemetry of all rounds, of `schemas.TELEMETRY`."""
        return pa.concat_tables([schemas.TELEMETRY.empty_table(), *self.telemetry])

    def data(self, spec: RunSpec) -> RunData:
        """What the run's metrics are computed from."""
        return RunData(self.table(), spec.slos, self.telemetry_table())


class Session:
    """Serves one run's configuration and puts rounds of load on it."""

    def __init__(self, inputs: RunInputs, leased: Lease, work: Path) -> None:
        """`work` takes the server's log and what the client writes."""
        self._inputs, self._leased, self._work = inputs, leased, work
        self._spec = inputs.spec
        self._engine = ENGINES.get(self._spec.engine.name)
        self._model: dict[str, Any] = json.loads(inputs.model_json.read_bytes())
        self.outcome = Outcome()
        self._complained: set[str] = set()
        model_path = (inputs.model_json.parent / self._model["path"]).absolute()
        runtime = RUNTIMES.get(inputs.environment.runtime)
        self._server = Server(
            self._engine,
            Serve(
                python=inputs.environment.python,
                model_path=model_path,
                model_name=self._engine.served_name(self._spec.model.id),
                port=0,
                options=self._spec.options,
                arguments=self._spec.arguments,
                count=self._spec.hardware.count,
                folder=work.absolute(),
            ),
            variables={**leased.environment, **self._spec.environment_variables},
            log=work / "server.log",
            startup_timeout_s=self._spec.protocol.startup_timeout_s,
            keep_open=leased.descriptors,
            cpus=leased.cpus,
            enter=partial(
                runtime.enter,
                inputs.environment,
                needs=Needs(
                    reads=[inputs.model_json.parent.absolute(), model_path.resolve()],
                    writes=[work.absolute()],
                    device=DEVICES.get(self._spec.hardware.device),
                    devices=leased.devices,
                ),
            ),
            root=runtime.root,
            clear=runtime.clear,
        )

    def round(self) -> list[float]:
        """One more round, on a server with empty caches; the objective's value in each round so far.

        A failed candidate ends up in `outcome.failure`, with the rounds so far. Raises `Outage`.
        """
        try:
            return self._round(len(self.outcome.records))
        except CandidateFailed as failure:
            self._check_disk()
            self._check_memory(failure)
            failure.log_lines = failure.log_lines or self._server.tail(_LOG_LINES)
            self.outcome.failure = failure
            return []
        except Outage:
            print("\n".join(self._server.tail(_LOG_LINES)), file=sys.stderr)
            self._check_disk()
            raise

    def stop(self) -> None:
        """Stops the server, so that the devices are free; another round starts it again."""
        self._server.stop()

    def finish(self) -> Outcome:
        """What came of it, with the manifest; the server is stopped."""
        self.stop()
        self.outcome.startup_s = self._server.startup_s
        self.outcome.server_starts = self._server.starts
        self.outcome.manifest = make_manifest(
            self._spec,
            environment=self._inputs.environment,
            leased=self._leased,
            command=self._server.launch.command,
            variables=self._server.launch.variables,
            model=self._model,
            requests=self._inputs.requests,
        )
        return self.outcome

    def _round(self, number: int) -> list[float]:
        protocol = self._spec.protocol
        if protocol.rounds.restart_server:
            self._server.restart()
        else:
            self._server.reset_caches()  # the first time, this starts it
        sampler = Sampler(self._leased.devices, self._serving, self._engine, self._complained)
        origins: dict[int, float] = {}
        try:
            with sampler:
                sampler.round(number)
                result = self._load_round(number, sampler)
            if result.stats.origin_monotonic_s is not None:
                origins[number] = result.stats.origin_monotonic_s
        finally:
            self.outcome.telemetry.append(sampler.table(origins))
        self.outcome.records.append(result.records)
        self.outcome.client_rounds.append(result.stats)
        check_served(result, self._spec)
        values = round_values(self.outcome.data(self._spec), self._spec.objective)
        say(f"round {number}: {self._spec.objective} {values[-1]:.1f}" if values else f"round {number}")
        return values

    def _load_round(self, number: int, sampler: Sampler) -> LoadResult:
        """Warm-up and load, with a reading right before and right after the load: counters then tell what it did."""
        plan, warmup_requests = self._plan(number), self._spec.protocol.warmup_requests
        if warmup_requests:
            check_served(self._load(warmup_plan(plan, warmup_requests)), self._spec)
        sampler.sample_now()
        result = self._load(plan)
        sampler.sample_now()
        return result

    def _serving(self) -> tuple[str, int] | None:
        return None if self._server.process is None else (self._server.base_url, self._server.pid)

    def _plan(self, number: int) -> LoadPlan:
        protocol, parameters = self._spec.protocol, self._spec.workload.parameters
        return LoadPlan(
            base_url=self._server.base_url,
            endpoint=parameters["endpoint"],
            model=self._engine.served_name(self._spec.model.id),
            requests=self._inputs.requests.absolute(),
            tokenizer=(self._inputs.model_json.parent / self._model["tokenizer"]).absolute(),
            round=number,
            settle_requests=protocol.settle_requests,
            request_rate=protocol.request_rate,
            arrivals=protocol.arrivals,
            burstiness=protocol.burstiness,
            ramp_up_s=protocol.ramp_up_s,
            max_concurrency=protocol.max_concurrency,
            duration_s=protocol.duration_s,
            saturation_in_flight=protocol.saturation_in_flight,
            processes=protocol.client_processes,
            seed=parameters.get("seed", 0),
            timeout_s=protocol.round_timeout_s,
            request_timeout_s=protocol.round_timeout_s,
            body=dict(self._engine.request_body),
        )

    def _load(self, plan: LoadPlan) -> LoadResult:
        """Runs the client once and reads what it wrote; `CandidateFailed` if the server ends meanwhile."""
        client = CLIENTS.get(self._spec.client.name)
        folder, log = self._work / "client", self._work / "client.log"
        folder.mkdir()
        assert self._server.process is not None
        command = client.command(plan, folder, self._inputs.client_python)
        with pinned(self._leased.client_cpus):
            running = Supervised(command, environment=os.environ, log=log, grace_s=2.0)
        said = 0
        try:
            left_s = plan.timeout_s + CLIENT_SLACK_S
            while left_s > 0 and running.poll() is None:
                wait_any([running, self._server.process], _FORWARD_EVERY_S)
                said = _forward(log, said)
                left_s -= _FORWARD_EVERY_S
                self._server.check_alive()
            if (returncode := running.poll()) is None:
                raise Outage(f"the load client did not end {CLIENT_SLACK_S:g} s after the round's time was over")
        finally:
            running.stop()
        if returncode:
            self._server.check_serving()
            last_words = log.read_text(encoding="utf-8", errors="replace").strip()[-500:]
            raise Outage(f"the load client failed: {last_words or f'exit code {returncode}'}")
        try:
            result = client.read(plan, folder)
        except Outage:
            raise
        except ServelabError as error:
            raise Outage(f"the load client left no whole result: {error}") from error
        shutil.rmtree(folder)
        log.unlink()
        if failed_requests(result.records) and not (result.stats.saturated or _out_of_time(result, self._spec)):
            self._server.check_serving()
        return result

    def _check_disk(self) -> None:
        """Raises `Outage` on a full disk: what failed then says nothing about the candidate."""
        if not shutil.disk_usage(self._work).free:
            raise Outage(f"no space is left for {self._work}")

    def _check_memory(self, failure: CandidateFailed) -> None:
        """Raises `Outage` where a job ran out of its host memory: how much it has is no part of the run's identity."""
        allocation = self._leased.allocation
        if isinstance(failure, KilledForMemory) and allocation.gives_memory:
            raise Outage(f"{allocation.giver()} has too little host memory: {failure.message}") from failure


def warmup_plan(plan: LoadPlan, requests: int) -> LoadPlan:
    """The plan's warm-up: so many requests of the workload's other phase, all at once."""
    return LoadPlan(
        base_url=plan.base_url,
        endpoint=plan.endpoint,
        model=plan.model,
        requests=plan.requests,
        tokenizer=plan.tokenizer,
        phase="warmup",
        limit=requests,
        round=plan.round,
        max_concurrency=plan.max_concurrency,
        timeout_s=plan.timeout_s,
        request_timeout_s=plan.request_timeout_s,
        body=plan.body,
    )


def check_served(result: LoadResult, spec: RunSpec) -> None:
    """Raises `CandidateFailed` for a round that says nothing about speed.

    That is one that ran into its time limit, one that was ended for saturation, or one without a success.
    """
    records = result.records
    said = failed_requests(records)
    if said is None:
        return
    if result.stats.saturated:
        most = spec.protocol.saturation_in_flight
        raise CandidateFailed("saturated", f"{most} requests were in flight, the server cannot keep up: {said}")
    if _out_of_time(result, spec):
        raise CandidateFailed("round_timeout", f"not finished in {spec.protocol.round_timeout_s:g} s: {said}")
    if records["error"].null_count == 0:
        raise CandidateFailed("requests_failed", said)


def _out_of_time(result: LoadResult, spec: RunSpec) -> bool:
    return float(pc.max(result.records["end_s"]).as_py() or 0.0) >= 0.999 * spec.protocol.round_timeout_s


def failed_requests(records: pa.Table) -> str | None:
    """How many requests failed and the most common reason; None if all succeeded."""
    errors = [error for error in records["error"].to_pylist() if error is not None]
    if not errors:
        return None
    common, count = Counter(errors).most_common(1)[0]
    return f"{len(errors)} of {records.num_rows} requests failed, {count} of them: {common[:300]}"


def status(inputs: RunInputs, outcome: Outcome) -> dict[str, Any]:
    """The content of a run's `status.json`, but for when it was."""
    records, failure = outcome.table(), outcome.failure
    failed = records.num_rows - records["error"].null_count
    ends = [pc.max(table["end_s"]).as_py() or 0.0 for table in outcome.records]
    return {
        "run_id": run_id(inputs.spec),
        "outcome": "failed" if failure else "ok",
        "reason": failure.reason if failure else None,
        "message": failure.message if failure else failed_requests(records),
        "log_lines": failure.log_lines if failure else [],
        "rounds": len(outcome.records),
        "requests": records.num_rows,
        "requests_failed": failed,
        "success_rate": 1 - failed / records.num_rows if records.num_rows else 0.0,
        "objective_rounds": [] if failure else round_values(outcome.data(inputs.spec), inputs.spec.objective),
        "client_rounds": [stats.model_dump(mode="json") for stats in outcome.client_rounds],
        "server_starts": outcome.server_starts,
        "startup_s": outcome.startup_s,
        "load_s": sum(ends),
        "accelerator_s": outcome.accelerator_s,
    }


def say(text: str) -> None:
    """A line for the log of the job."""
    print(text, file=sys.stderr, flush=True)


def _forward(log: Path, already: int) -> int:
    """Passes on what the client has said since `already` bytes; how many it has said now."""
    with log.open("rb") as said:
        said.seek(already)
        text = said.read()
    if text:
        sys.stderr.write(text.decode(errors="replace"))
        sys.stderr.flush()
    return already + len(text)
