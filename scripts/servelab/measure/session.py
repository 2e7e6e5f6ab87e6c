"""One visit: serves a configuration on leased devices, and measures one load after the other on it."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa

from servelab.assets.model_files import load_model
from servelab.core.errors import Outage, ServelabError
from servelab.core.identity import content_id
from servelab.core.processes import Supervised, last_text, log_line, wait_any
from servelab.core.run_spec import RunSpec
from servelab.engines.balancers import BALANCERS, ROUND_ROBIN
from servelab.engines.runtimes import RUNTIMES, Needs
from servelab.engines.start_rules import with_folders
from servelab.machine.devices import DEVICES
from servelab.machine.lease import Lease, pinned
from servelab.measure.clients import CLIENTS
from servelab.measure.inputs import CLIENT_SLACK_S, RunInputs
from servelab.measure.load import LoadPlan, LoadResult
from servelab.measure.nodes import NodeParts, Nodes
from servelab.measure.outcome import Outcome, check_served, failed_requests, out_of_time
from servelab.measure.replicas import Replicas
from servelab.measure.run_folder import make_manifest
from servelab.measure.server import CandidateFailed, KilledForMemory, Server
from servelab.measure.telemetry import Sampler, Watched
from servelab.measure.visited import VisitedServer
from servelab.metrics.capacity import UNITS, find_capacity, judge, next_load
from servelab.metrics.definitions import round_values
from servelab.metrics.tables.io import record_array

_OVERLOADED = ("saturated", "round_timeout", "requests_failed")
"""Failures of a round that say no more than that its load is above the capacity."""


def search_capacity(inputs: RunInputs, outcome: Outcome, send: Callable[[RunInputs, Outcome], None]) -> None:
    """Fills the outcome: its records are those of the highest load that holds, as round 0, beside those of all steps.

    `send` measures one load. Raises `CandidateFailed` if the lowest load does not hold (`slo_missed`), or if
    the server failed at a load.
    """
    spec = inputs.spec.capacity
    assert spec is not None
    steps: list[Outcome] = []
    while (load := next_load(spec, outcome.steps)) is not None:
        step = Outcome(logs_from=outcome.logs_from, served_by=outcome.served_by)
        try:
            send(replace(inputs, spec=_one_load(inputs.spec, load)), step)
        except CandidateFailed as failure:
            if failure.reason not in _OVERLOADED or not step.records:
                failure.message = f"at {load:g} {UNITS[spec.of]}: {failure.message}"
                raise
        finally:
            outcome.logs_from = step.logs_from
        number = len(steps)
        steps.append(step)
        outcome.step_records.append(_as_round(step.records[0], number))
        outcome.step_telemetry += [_as_round(table, number) for table in step.telemetry]
        outcome.steps.append(judge(spec, load, record_array(step.records[0])))
        log_line(f"step {number}: {outcome.steps[-1].text(spec.of)}")
    found = find_capacity(spec, outcome.steps)
    if found is None:
        raise CandidateFailed("slo_missed", f"the lowest load does not hold: {outcome.steps[-1].text(spec.of)}")
    log_line(f"capacity {found.load:.4g} {UNITS[spec.of]}: {found.text}")
    kept = steps[found.step]
    outcome.records, outcome.telemetry, outcome.client_rounds = kept.records, kept.telemetry, kept.client_rounds


def _one_load(spec: RunSpec, load: float) -> RunSpec:
    """A step's specification. Each start draws arrivals of its own; they are the same for all configurations.

    Near saturation a latency is as much a figure of the arrivals as of the server: starts with the same arrivals would
    agree with each other, and not with what the next user measures.
    """
    seed = int(content_id([spec.workload.parameters.get("seed", 0), spec.start])[:8], 16)
    workload = spec.workload.model_copy(update={"parameters": {**spec.workload.parameters, "seed": seed}})
    return spec.at(load).model_copy(update={"workload": workload})


def _as_round(table: pa.Table, number: int) -> pa.Table:
    """The rows of a round under another number."""
    position = table.schema.get_field_index("round")
    column = pa.array([number] * table.num_rows, type=table.schema.field(position).type)
    return table.set_column(position, table.schema.field(position), column)


_LOG_LINES = 12
_SEED = 1
"""Of sampling, where texts are kept; with temperature 0 nothing should be drawn."""
_FORWARD_EVERY_S = 2.0
_MOST_FORWARDED = 1 << 16
"""Bytes of a client's log that are shown at once."""


class Session:
    """The server of a visit. It is started for the first load, and stays up between loads."""

    def __init__(
        self, inputs: RunInputs, leased: Lease, folder: Path, startup_timeout_s: float, nodes: Nodes | None = None
    ) -> None:
        """`inputs` are those of any run of the visit; `folder` is for the server's logs and its own files.

        `nodes` are all nodes of a run on several.
        """
        self._leased, self._folder, self._engine, self._nodes = leased, folder, inputs.engine, nodes
        self._failed_start: CandidateFailed | None = None
        self._unread: set[str] = set()
        """Sources of telemetry that cannot be read, as was said."""
        self.log = folder / "server.log"
        """Output of all server starts."""
        self.log.touch()
        self.server: Server | VisitedServer | Replicas
        if self._engine.already_runs:
            address = self._engine.address(inputs.spec.arguments)
            self.server = VisitedServer(address, inputs.served_name, self.log)
        elif (served := inputs.spec.served.balancer) is None:
            self.server = self._own(inputs, startup_timeout_s, leased, folder, self.log)
        else:
            servers = [
                self._own(inputs, startup_timeout_s, part, folder / f"server{number}", self._log_of(number))
                for number, part in enumerate(leased.split(inputs.spec.hardware.replicas))
            ]
            balancer = BALANCERS.get(served.name)
            self.server = Replicas(servers, balancer, self._engine, folder, leased.client_cpus)

    def _log_of(self, number: int) -> Path:
        """The log of one of several servers."""
        log = self.log.with_stem(f"server{number or ''}")
        log.touch()
        return log

    def _own(self, inputs: RunInputs, startup_timeout_s: float, leased: Lease, folder: Path, log: Path) -> Server:
        """A server on leased devices; `folder` is for its own files."""
        runtime = RUNTIMES.get(inputs.environment.runtime)
        folder.mkdir(exist_ok=True)
        serve, seconds = inputs.serve(folder), {name: load_model(at)[1] for name, at in inputs.second_models.items()}
        enter = partial(
            runtime.enter,
            inputs.environment,
            needs=Needs(
                reads=[inputs.model_json.parent.absolute(), inputs.model_path.resolve(), *seconds.values()],
                writes=[folder.absolute()],
                device=DEVICES.get(inputs.spec.hardware.device),
                devices=leased.devices,
            ),
        )
        per_node = inputs.spec.hardware.per_node
        return Server(
            self._engine,
            replace(serve, arguments=with_folders(serve.arguments, seconds)),
            variables={**inputs.spec.environment_variables, **leased.environment},
            log=log,
            startup_timeout_s=startup_timeout_s,
            keep_open=leased.descriptors,
            cpus=leased.cpus,
            enter=enter,
            root=runtime.root,
            clear=runtime.clear,
            parts=NodeParts(self._engine, self._nodes, per_node, folder, enter) if self._nodes else None,
        )

    def measure(self, inputs: RunInputs, work: Path) -> Outcome:
        """Measures a run's rounds, each with empty caches; `work` is for the client's files, and is left empty.

        If the candidate fails, `Outcome.failure` says how, and the server is stopped: the next load gets a new start.
        But a configuration that did not become healthy is not started again. Raises `Outage`.
        """
        outcome = Outcome(logs_from=self.server.logs_from)
        try:
            if inputs.spec.capacity is not None:
                search_capacity(inputs, outcome, lambda step, tried: self._round(step, work, 0, tried))
            else:
                for number in range(inputs.spec.protocol.rounds):
                    self._round(inputs, work, number, outcome)
        except CandidateFailed as failure:
            self._check_disk()
            allocation = self._leased.allocation
            if isinstance(failure, KilledForMemory) and allocation.gives_memory:  # no part of a run's identity
                raise Outage(f"{allocation.giver()} has too little host memory: {failure.message}") from failure
            failure.log_lines = failure.log_lines or self.server.tail(_LOG_LINES)
            outcome.failure = failure
            self.stop()
        except Outage:
            print("\n".join(self.server.tail(_LOG_LINES)), file=sys.stderr)
            self._check_disk()
            raise
        return self._ended(inputs, outcome)

    def leave_out(self, inputs: RunInputs, why: str) -> Outcome:
        """The outcome of a run whose load is not sent to the server that is up."""
        return self._ended(inputs, Outcome(not_sent=why, logs_from=self.server.logs_from))

    def _ended(self, inputs: RunInputs, outcome: Outcome) -> Outcome:
        outcome.start_id, outcome.startup_s = self.server.start_id, self.server.startup_s
        outcome.manifest = make_manifest(inputs, self._leased, self.server)
        return outcome

    def stop(self) -> None:
        """Stops the server, so that the devices are free; the next round starts it again."""
        self.server.stop()

    def restart_later(self) -> None:
        """Stops the server; the next round gets a new start, even if the last start failed."""
        self.stop()
        self._failed_start = None

    def _round(self, inputs: RunInputs, work: Path, number: int, outcome: Outcome) -> None:
        self._empty_caches(keep=inputs.spec.keeps_answers)
        assert self.server.start_id is not None
        if not outcome.served_by:  # emptying them may have taken a restart
            outcome.logs_from = self.server.logs_from
        outcome.served_by.append(self.server.start_id)
        elsewhere = inputs.spec.hardware.count - inputs.spec.hardware.per_node
        watched = Watched(self._leased.devices, self._engine, lambda: self.server.serving, elsewhere, self._leased.cpus)
        sampler, origin = Sampler(watched, self._unread), None
        try:
            with sampler:
                result = self._load_round(inputs, work, number, sampler)
                origin = result.stats.origin_monotonic_s
        finally:
            outcome.telemetry.append(sampler.table(number, origin))
        outcome.records.append(result.records)
        outcome.client_rounds.append(result.stats)
        check_served(result, inputs.spec)
        if result.answers is not None:
            outcome.answers.append(result.answers)
            log_line(f"{result.answers.num_rows} answers are kept")
            return
        values = round_values(outcome.data(inputs.spec), inputs.spec.objective)
        log_line(f"round {number}: {inputs.spec.objective} {values[-1]:.1f}" if values else f"round {number}")

    def _empty_caches(self, *, keep: bool) -> None:
        """Empties the server's caches, or starts it; `CandidateFailed` if it has ended or does not become healthy.

        With `keep`, a server that is up stays as it is: its answers are those of the start that was timed.
        """
        if self._failed_start is not None:
            log_line("the server is not started again: this configuration does not become healthy")
            failed = self._failed_start  # a finding by now, also if it was killed
            raise CandidateFailed(failed.reason, failed.message, failed.log_lines)
        try:
            if keep and self.server.is_up:
                self.server.check_alive()
            else:
                self.server.reset_caches()
        except CandidateFailed as failure:
            if not self.server.is_up:
                self._failed_start = failure
            raise

    def _load_round(self, inputs: RunInputs, work: Path, number: int, sampler: Sampler) -> LoadResult:
        """Sends warm-up and load, and reads the telemetry right before and after the load, for exact counters."""
        plan = self._plan(inputs, number)
        warmup_requests = inputs.spec.protocol.warmup_requests * inputs.spec.hardware.replicas
        if warmup_requests:
            check_served(self._load(inputs, work, warmup_plan(plan, warmup_requests)), inputs.spec)
        sampler.sample_now()
        result = self._load(inputs, work, plan)
        sampler.sample_now()
        return result

    def _plan(self, inputs: RunInputs, number: int) -> LoadPlan:
        protocol, parameters = inputs.spec.protocol, inputs.spec.workload.parameters
        first_url, *more_urls = self.server.base_urls
        return LoadPlan(
            base_url=first_url,
            more_urls=tuple(more_urls),
            balancer=inputs.spec.served.balancer.name if inputs.spec.served.balancer else ROUND_ROBIN,
            **self.server.reach,
            endpoint=parameters["endpoint"],
            model=inputs.served_name,
            requests=inputs.requests.absolute(),
            tokenizer=(inputs.model_json.parent / inputs.model.tokenizer).absolute(),
            round=number,
            processes=protocol.client_processes,
            seed=parameters.get("seed", 0),
            keep_answers=inputs.spec.keeps_answers,
            natural_stops=inputs.spec.natural_stops,
            timeout_s=protocol.round_timeout_s,
            request_timeout_s=protocol.round_timeout_s,
            body=_body(inputs.spec),
            **protocol.model_dump(include=set(LoadPlan.model_fields)),
        )

    def _load(self, inputs: RunInputs, work: Path, plan: LoadPlan) -> LoadResult:
        """Runs the client once and reads its results; `CandidateFailed` if the server ends meanwhile."""
        with TemporaryDirectory(dir=work, prefix="client-", ignore_cleanup_errors=True) as temporary:
            result = self._run_client(inputs, Path(temporary).absolute(), plan)
        if failed_requests(result.records) and not (result.stats.saturated or out_of_time(result, inputs.spec)):
            self.server.check_serving()
        return result

    def _run_client(self, inputs: RunInputs, temporary: Path, plan: LoadPlan) -> LoadResult:
        client = CLIENTS.get(inputs.spec.client.name)
        folder, log = temporary / "client", temporary / "client.log"
        folder.mkdir()
        python = inputs.client_environment.python if inputs.client_environment else Path(sys.executable)
        command = client.command(plan, folder, python)
        with pinned(self._leased.client_cpus):
            running = Supervised(command, environment=os.environ, log=log, grace_s=2.0)
        forwarded_bytes = 0
        try:
            left_s = plan.timeout_s + CLIENT_SLACK_S
            while left_s > 0 and running.poll() is None:
                wait_any([running, *self.server.processes], _FORWARD_EVERY_S)
                forwarded_bytes = _forward(log, forwarded_bytes)
                left_s -= _FORWARD_EVERY_S
                self.server.check_alive()
            if (returncode := running.poll()) is None:
                if late := client.out_of_time(plan):
                    return late
                raise Outage(f"the load client did not end within {CLIENT_SLACK_S:g} s after the round's time limit")
        finally:
            running.stop()
        if not client.has_ended(returncode, folder):
            self._check_disk()  # its own log is then empty
            self.server.check_serving()
            output = last_text(log, 500)
            raise Outage(f"the load client failed: {output or f'exit code {returncode}'}")
        try:
            return client.read(plan, folder)
        except Outage:
            raise
        except ServelabError as error:
            raise Outage(f"the load client's results are incomplete: {error}") from error

    def _check_disk(self) -> None:
        """Raises `Outage` on a full disk: the failure is then not the candidate's."""
        if not shutil.disk_usage(self._folder).free:
            raise Outage(f"no space left for {self._folder}")


def _body(spec: RunSpec) -> dict[str, Any]:
    """Further fields of each request: those of the engine, without what forces lengths if answers end by themselves."""
    if spec.keeps_answers:
        return {"seed": _SEED}
    left_out = ("ignore_eos",) if spec.natural_stops else ()
    return {name: value for name, value in spec.served.request_body.items() if name not in left_out}


_OF_WARM_UP = {
    *("base_url", "more_urls", "balancer", "api_key_env", "header_env", "insecure", "endpoint", "model", "requests"),
    *("tokenizer", "round", "max_concurrency", "natural_stops", "timeout_s", "request_timeout_s", "body"),
}
"""Fields of a plan that its warm-up has too."""


def warmup_plan(plan: LoadPlan, requests: int) -> LoadPlan:
    """The warm-up of a plan: `requests` requests of the workload's phase `warmup`, sent at once."""
    return LoadPlan(phase="warmup", limit=requests, **plan.model_dump(include=_OF_WARM_UP))


def _forward(log: Path, forwarded_bytes: int) -> int:
    """Copies the client's log from `forwarded_bytes` on to standard error; returns the bytes forwarded in total.

    Of more than `_MOST_FORWARDED` only the last part is copied.
    """
    with log.open("rb") as output:
        end = os.fstat(output.fileno()).st_size
        output.seek(max(forwarded_bytes, end - _MOST_FORWARDED))
        text = output.read(_MOST_FORWARDED)
    if text:
        sys.stderr.write(text.decode(errors="replace"))
        sys.stderr.flush()
    return max(forwarded_bytes, end - _MOST_FORWARDED) + len(text)
