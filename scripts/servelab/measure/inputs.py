"""What a run is measured with: its specification, environments and files."""

from __future__ import annotations

import os
import platform
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import psutil

from servelab.assets.pinned_file import StoredModel
from servelab.core.credentials import key_of
from servelab.core.errors import ConfigError, Outage
from servelab.core.run_spec import RunSpec
from servelab.engines.adapters import ENGINES, Engine
from servelab.engines.runtimes import Environment
from servelab.engines.server_identity import render_served
from servelab.engines.server_to_start import Serve, planned_span
from servelab.machine.cpu_facts import cpu_model, cpu_settings
from servelab.machine.lease import Lease
from servelab.measure.clients import CLIENTS, version_in_identity
from servelab.measure.run_files import Machine, ManifestDevice

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
    def client_python(self) -> Path:
        """Interpreter of the load client."""
        return self.client_environment.python if self.client_environment else Path(sys.executable)

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

    def serve(self, folder: Path) -> Serve:
        """The server to start; `folder` is for its own files."""
        return Serve(
            python=self.environment.python,
            model_path=self.model_path,
            model_name=self.served_name,
            port=0,
            options=self.spec.options,
            arguments=self.spec.arguments,
            count=self.spec.hardware.count,
            folder=folder.absolute(),
            span=planned_span(self.spec.hardware.nodes),
        )

    def check(self) -> None:
        """Raises `ConfigError` if environment, client, files or adapter are not those of the specification."""
        spec, environment = self.spec, self.environment
        if environment.tool != spec.engine.name or environment.lock_sha256 != spec.engine.environment_sha256:
            raise ConfigError(f"the environment was built from another lock than the run's lock of {spec.engine.name}")
        if environment.runtime != spec.engine.runtime:
            found = f"the environment has runtime {environment.runtime}, the run needs {spec.engine.runtime}"
            raise ConfigError(f"{found}; use one lock or description per runtime")
        if environment.version != spec.engine.version:
            found = f"the environment has {spec.engine.name} {environment.version}"
            raise ConfigError(f"{found}, the run needs {spec.engine.version}; change the study's version or the lock")
        client = self.client_environment
        lock_sha256, release = (client.lock_sha256, client.version) if client else (None, None)
        if lock_sha256 != spec.client.environment_sha256:
            raise ConfigError(
                f"the client's environment was built from another lock than the run's of {spec.client.name}"
            )
        if (found := version_in_identity(CLIENTS.get(spec.client.name), release)) != spec.client.version:
            raise ConfigError(f"the client is {spec.client.name} {found}, the run needs {spec.client.version}")
        for path in (self.model_json, self.requests):
            if not path.is_file():
                raise ConfigError(f"{path}: no such file")
        if self.engine.already_runs:
            self._check_reach()
        served = render_served(self.engine, self.serve(Path()), spec.engine.runtime, spec.hardware.device)
        if served != spec.served:
            raise ConfigError(
                "the code of the adapter or the runtime has changed since this run was planned; run the workflow again"
            )

    def _check_reach(self) -> None:
        """Raises `ConfigError` if the key of a server that already runs is not set, or the client cannot reach it."""
        address, client = self.engine.address(self.spec.arguments), self.spec.client.name
        key_of(address.key_variable)
        if address.needs_own_client and client != OWN_CLIENT:
            raise ConfigError(f"client {client} cannot reach {address.url}: TLS and keys need `client: {OWN_CLIENT}`")


def devices_of(leased: Lease) -> list[ManifestDevice]:
    """The reserved devices, as a manifest has them."""
    return [
        ManifestDevice(index=d.index, name=d.name, driver=d.driver, memory_bytes=d.memory_bytes, settings=d.settings)
        for d in leased.devices
    ]


def this_machine() -> Machine:
    """The machine that this process is on."""
    return Machine(
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
