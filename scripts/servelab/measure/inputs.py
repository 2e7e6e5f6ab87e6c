"""The inputs of a run: its specification, environments and files."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil
from pathlib import Path
from typing import Annotated

import psutil
from pydantic import Field

from servelab.assets.pinned_file import StoredModel
from servelab.core.errors import ConfigError, Outage
from servelab.core.files import REMEDY, read_json
from servelab.core.identity import content_id, file_sha256
from servelab.core.run_spec import SERVED, ProtocolSpec, RunSpec, Strict
from servelab.engines.adapters import ENGINES, Engine
from servelab.engines.balancers import planned_balancer
from servelab.engines.runtimes import Environment, read_environment
from servelab.engines.server_identity import render_served
from servelab.engines.server_to_start import Serve, planned_span
from servelab.machine.cpu import cpu_model, cpu_settings
from servelab.machine.lease import Lease
from servelab.measure.clients import CLIENTS, version_in_identity
from servelab.measure.run_files import ManifestDevice, MeasuringMachine

ENDS_AT = "SERVELAB_ENDS_AT"
"""Variable with the Unix time at which the allocation ends that a whole study runs in."""
STEP = "SERVELAB_STEP"
"""Variable that makes each run a step on any node of the allocation: `gpu 12`, a device's gres and its CPUs."""
OWN_CLIENT = "servelab"
"""The load client that speaks TLS and sends a key."""


@dataclass(frozen=True)
class RunInputs:
    """Specification, environments and files of a run."""

    spec: RunSpec
    environment: Environment
    client_environment: Environment | None
    """Environment of the load client; None if the client uses the workflow's environment."""
    model_json: Path
    requests: Path

    @property
    def engine(self) -> Engine:
        """The engine that serves."""
        return ENGINES.get(self.spec.engine.name)

    @property
    def served_name(self) -> str:
        """The model's name in requests."""
        named = self.engine.address(self.spec.arguments).model if self.engine.already_runs else None
        return named or self.engine.served_name(self.spec.model.id)

    @cached_property
    def model(self) -> StoredModel:
        """The model's files."""
        return StoredModel.read(self.model_json)

    @property
    def model_path(self) -> Path:
        """The model's folder or file."""
        return (self.model_json.parent / self.model.path).absolute()

    @property
    def second_models(self) -> dict[str, Path]:
        """`model.json` of each draft and adapter by repository; all models of a workflow are in one folder."""
        seconds = {of: content_id(each.model_dump(mode="json")) for of, each in self.spec.model.second_models.items()}
        return {name: self.model_json.parents[1] / folder / "model.json" for name, folder in seconds.items()}

    def serve(self, folder: Path) -> Serve:
        """The server as planned: drafts and adapters by repository; `folder` is for its own files."""
        return Serve(
            python=self.environment.python,
            model_path=self.model_path,
            model_name=self.served_name,
            port=0,
            options=self.spec.options,
            arguments=self.spec.arguments,
            count=self.spec.hardware.per_server,
            folder=folder.absolute(),
            span=planned_span(self.spec.hardware.nodes),
        )

    def check(self) -> None:
        """Raises `ConfigError` if environment, client, files or adapter are not those of the specification."""
        spec, environment, client = self.spec, self.environment, self.client_environment
        tool, of_client = spec.engine.name, CLIENTS.get(spec.client.name)
        lock, release = (client.lock_sha256, client.version) if client else (None, None)
        for what, found, wanted in (
            ("engine", environment.tool, tool),
            (f"lock of {tool}", environment.lock_sha256, spec.engine.environment_sha256),
            (f"runtime of {tool}", environment.runtime, spec.engine.runtime),
            (f"version of {tool}", environment.version, spec.engine.version),
            (f"lock of {spec.client.name}", lock, spec.client.environment_sha256),
            (spec.client.name, version_in_identity(of_client, release), spec.client.version),
        ):
            if found != wanted:
                raise ConfigError(f"{what}: here is {found}, the run needs {wanted}; change the version or lock")
        for path in (self.model_json, self.requests, *self.second_models.values()):
            if not path.is_file():
                raise ConfigError(f"{path}: no such file")
        described = self.requests.with_name("workload.json")
        if described.is_file() and read_json(described).get("requests_sha256") != file_sha256(self.requests):
            raise ConfigError(f"{self.requests}: was changed since it was made; {REMEDY}")
        if self.engine.already_runs:
            self._check_reach()
        balancer = planned_balancer(spec.served.balancer.name, spec.hardware.replicas) if spec.served.balancer else None
        served = render_served(self.engine, self.serve(Path()), spec.engine.runtime, spec.hardware.device, balancer)
        if served != spec.served:
            raise ConfigError(
                "the code of the adapter or the runtime has changed since this run was planned; run the workflow again"
            )

    def _check_reach(self) -> None:
        """Raises `ConfigError` if the key of a server that already runs is not set, or the client cannot reach it."""
        address, client = self.engine.address(self.spec.arguments), self.spec.client.name
        _ = address.headers  # an error if a variable has no value
        if address.needs_own_client and client != OWN_CLIENT:
            raise ConfigError(f"client {client} cannot reach {address.url}: TLS and keys need `client: {OWN_CLIENT}`")


def devices_of(leased: Lease) -> list[ManifestDevice]:
    """The reserved devices, as a manifest has them."""
    return [
        ManifestDevice(index=d.index, name=d.name, driver=d.driver, memory_bytes=d.memory_bytes, settings=d.settings)
        for d in leased.devices
    ]


def this_machine() -> MeasuringMachine:
    """The machine that this process is on."""
    return MeasuringMachine(
        cpu=cpu_model(),
        cpu_settings=cpu_settings(),
        cpus=psutil.cpu_count(logical=True),
        cpus_usable=len(os.sched_getaffinity(0)),
        memory_bytes=psutil.virtual_memory().total,
        kernel=platform.release(),
        architecture=platform.machine(),
        python=platform.python_version(),
    )


def interface_of(address: str) -> str:
    """The network interface of this machine that has an address; `Outage` if none has it."""
    for name, addresses in psutil.net_if_addrs().items():
        if any(each.address == address for each in addresses):
            return name
    raise Outage(f"no network interface here has the address {address}, by which the cluster knows this node")


class JobRun(Strict):
    """One run of a job: its specification, and the files that it is measured with."""

    spec: RunSpec
    environment: Path = Field(description="`environment.json` of the engine.")
    client_environment: Path | None = Field(None, description="`environment.json` of the load client, if it has one.")
    model: Path = Field(description="`model.json` in a format that the engine serves.")
    requests: Path = Field(description="The workload's `requests.parquet`.")

    def inputs(self) -> RunInputs:
        """Its inputs; `ServelabError` if an environment cannot be read."""
        return RunInputs(
            spec=self.spec,
            environment=read_environment(self.environment),
            client_environment=read_environment(self.client_environment) if self.client_environment else None,
            model_json=self.model,
            requests=self.requests,
        )


class MeasuringJob(Strict):
    """The visits of a job, in order."""

    visits: Annotated[
        list[Annotated[list[JobRun], Field(min_length=1)]],
        Field(
            min_length=1,
            description="Runs of each visit, in the order of measurement: one visit, or a pair; more if studies that "
            "share a baseline ask for pairs with different winners at the same time.",
        ),
    ]


def visit_id(spec: RunSpec) -> str:
    """Equal for runs that one visit may measure: of one configuration, hardware and start."""
    return content_id(spec.model_dump(mode="json", include=set(SERVED)))


CLIENT_SLACK_S = 60.0
"""Time for a client to start and to write its records, in addition to the round."""
_JOB_S = 600.0
"""Time of a job outside its rounds: Snakemake's start, reads from a busy file system, stopping the server."""
_TIMES_PAST = 3.0
"""A run may take this many times the mean of similar past runs."""


def longest_s(protocol: ProtocolSpec, rounds: int) -> float:
    """Most seconds that a number of rounds can take: each may restart the server, warm up and send load."""
    loads = 2 if protocol.warmup_requests else 1
    return rounds * (protocol.startup_timeout_s + loads * (protocol.round_timeout_s + CLIENT_SLACK_S))


def runtime_min(
    visits: Sequence[Sequence[RunSpec]], about_s: Callable[[RunSpec], float | None] = lambda spec: None
) -> int:
    """Minutes that a job requests for the runs of its visits.

    `about_s` returns the mean of similar past runs in accelerator-seconds, or None if there are none. 600 s, and for
    each visit the sum over its runs of `longest_s`, because the protocol's own limits end a run by then (it is measured
    again only within them); or, if that is less, one start-up and the sum of `3 × about_s / accelerators`, if all of
    its runs have similar past ones.
    """
    return ceil((_JOB_S + sum(_visit_s(visit, about_s) for visit in visits)) / 60)


def _visit_s(visit: Sequence[RunSpec], about_s: Callable[[RunSpec], float | None]) -> float:
    most_s = sum(longest_s(spec.protocol, spec.most_rounds) for spec in visit)
    past = [(about_s(spec), spec.hardware.count) for spec in visit]
    known = [_TIMES_PAST * seconds / count for seconds, count in past if seconds is not None]
    if len(known) < len(visit):
        return most_s
    # a mean of runs that began on a running server does not have the start-up in it
    return min(most_s, max(spec.protocol.startup_timeout_s for spec in visit) + sum(known))
