"""A container from a registry's image, run by docker: it belongs to docker's daemon, and still ends with its job.

Its first process is a small guard, which runs the server and ends when its standard input closes. `container_holder.py`
in the job's process tree, holds the other end of that input. The container uses the host's network: a published port
would add the daemon's proxy to every measurement.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import psutil

from servelab.core.errors import Outage
from servelab.engines.runtimes import RUNTIMES, Environment, Image, Needs
from servelab.engines.runtimes.containers import (
    INSIDE_HOME,
    PLANNED_IMAGE,
    Bind,
    ContainerRuntime,
    binds_of,
    call,
    cannot_start,
    planned_needs,
    variables_inside,
)
from servelab.machine.devices import DeviceKind

_HOLDER = Path(__file__).with_name("container_holder.py")
_GUARD = Path(__file__).with_name("guard.sh").read_text(encoding="utf-8")
"""Runs a command, as process 1, until it ends or standard input closes. After SIGTERM the command has 8 s, less than
the warden's 10 s, so that the container is gone before the client is killed."""


@dataclass(frozen=True)
class _Place:
    """The differences between containers of the same kind: the process that starts one, and its machine."""

    name: str
    """The container's."""
    user: int
    """Its numeric id."""
    group: int
    groups: tuple[int, ...]
    shared_memory_bytes: int
    cpus: tuple[int, ...] | None
    """The CPUs that it may use; None if it may use all."""


@dataclass(frozen=True)
class Docker(ContainerRuntime):
    """The image is in the daemon's store; a home folder in the environment's folder holds the engine's caches."""

    name: str = "docker"
    client_variables: ClassVar[tuple[str, ...]] = ("DOCKER_",)
    """Prefixes of the variables that tell the client where its daemon is."""

    def enter(
        self, environment: Environment, command: list[str], variables: dict[str, str], needs: Needs
    ) -> tuple[list[str], dict[str, str]]:
        """See `Runtime.enter`; `Outage` if the image is no longer in the store."""
        assert environment.image is not None
        image = environment.image
        if not self._has(image.reference):
            raise Outage(f"{self.name} no longer has the image {image.reference}; `{self.name} pull` it again")
        given = variables_inside({**environment.variables, **variables}, needs)
        started = self._started(image, binds_of(image, needs), needs, given, _here(needs))
        client = {name: value for name, value in os.environ.items() if name.startswith(self.client_variables)}
        return [sys.executable, "-P", *started, *command], client

    def container(self, device: DeviceKind, count: int) -> list[str]:
        """See `Runtime.container`; as a user who is not root starts it."""
        place = _Place("servelab", user=1000, group=1000, groups=(), shared_memory_bytes=0, cpus=(0,))
        return self._started(PLANNED_IMAGE, [], planned_needs(device, count), {}, place)

    def root(self, pid: int) -> int:
        """See `Runtime.root`; `Outage` if the container's processes are not visible on this machine."""
        try:
            command = psutil.Process(pid).cmdline()
        except psutil.Error:
            return pid  # it has ended, which its parent notices
        name = _name(command)
        asked = [self.name, "container", "inspect", "--format", "{{.State.Pid}}", name]
        found = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
        if found in ("", "0"):
            return pid  # it is not started yet
        if not psutil.pid_exists(int(found)):
            raise Outage(f"container {name} is not visible here: its daemon must run on this machine")
        return int(found)

    def clear(self, started: list[str]) -> None:
        """See `Runtime.clear`; after a kill of the warden, nothing else removes the container."""
        remove = [self.name, "rm", "--force", _name(started)]
        subprocess.run(remove, capture_output=True, check=False)  # usually there is no such container any more

    def _fetch(self, reference: str, folder: Path) -> Path | None:
        if not self._has(reference):
            call([self.name, "pull", reference])
        return None

    def _ask(self, image: Image, command: list[str], variables: dict[str, str]) -> tuple[list[str], dict[str, str]]:
        run = [*self._run(image, _home(image), _here()), *_given(variables), "--entrypoint", command[0], *image.flags]
        return [*run, image.reference, *command[1:]], {}

    def _started(
        self, image: Image, binds: list[Bind], needs: Needs, variables: dict[str, str], place: _Place
    ) -> list[str]:
        """The command of the holder, up to the server's own."""
        return [
            str(_HOLDER),
            *self._run(image, [*binds, *_home(image)], place),
            *("--interactive", "--name", place.name),
            *(part for folder in needs.writes for part in ("--label", f"servelab.folder={folder}")),
            *(part for node in needs.passthrough.nodes for part in ("--device", node)),
            *needs.passthrough.flags.get(self.name, ()),
            *self._cpus(place),
            *_given(variables),
            *("--entrypoint", "/bin/sh", *image.flags, image.reference, "-c", _GUARD, "servelab"),
        ]

    def _has(self, reference: str) -> bool:
        try:
            done = subprocess.run([self.name, "image", "inspect", reference], capture_output=True, check=False)
        except OSError as error:
            raise cannot_start(self.name, error) from error
        return done.returncode == 0

    def _run(self, image: Image, binds: list[Bind], place: _Place) -> list[str]:
        """`docker run` as the calling user, with shared memory of the host's size (the default is 64 MB).

        The container has a `/dev/shm` of its own, so that what a killed engine leaves there goes with it.
        """
        mounts = [f"type=bind,source={b.source},target={b.target}{',readonly' if b.read_only else ''}" for b in binds]
        return [
            *(self.name, "run", "--rm", "--pull=never", "--network=host", "--no-healthcheck", "--log-driver=none"),
            *("--security-opt", "label=disable", f"--shm-size={place.shared_memory_bytes}"),
            *self._user(place),
            *("--workdir", str(INSIDE_HOME)),
            *("--env", f"HOME={INSIDE_HOME}", "--env", "USER=servelab"),
            *(part for mount in mounts for part in ("--mount", mount)),
        ]

    def _user(self, place: _Place) -> list[str]:
        groups = [part for group in place.groups for part in ("--group-add", str(group))]
        return ["--user", f"{place.user}:{place.group}", *groups]

    def _cpus(self, place: _Place) -> list[str]:
        """Restricts the container to this run's CPUs: by default a daemon's container uses all CPUs."""
        return [] if place.cpus is None else [f"--cpuset-cpus={','.join(map(str, place.cpus))}"]


def _here(needs: Needs | None = None) -> _Place:
    """This process and machine, for a container with these devices."""
    usable = {cpu for device in needs.devices for cpu in device.cpus} if needs else set()
    usable = usable or os.sched_getaffinity(0)
    memory = os.statvfs("/dev/shm")  # noqa: S108 (asked for its size)
    return _Place(
        f"servelab-{secrets.token_hex(8)}",
        user=os.getuid(),
        group=os.getgid(),
        groups=tuple(sorted(os.getgroups())),
        shared_memory_bytes=memory.f_blocks * memory.f_frsize,
        cpus=None if usable >= set(range(os.cpu_count() or 1)) else tuple(sorted(usable)),
    )


def _name(started: list[str]) -> str:
    return started[started.index("--name") + 1]


def _home(image: Image) -> list[Bind]:
    return [Bind(image.home, INSIDE_HOME, read_only=False)]


def _given(variables: dict[str, str]) -> list[str]:
    return [part for name, value in variables.items() for part in ("--env", f"{name}={value}")]


@dataclass(frozen=True)
class Podman(Docker):
    """The image is in the user's store."""

    name: str = "podman"
    client_variables: ClassVar[tuple[str, ...]] = ("CONTAINER", "DBUS_SESSION_BUS_ADDRESS", "XDG_")

    def _user(self, place: _Place) -> list[str]:
        """See `Docker._user`; without root, it maps users to the caller, and it must not pass on the host's proxies."""
        mapped = ["--userns=keep-id", "--group-add=keep-groups"] if place.user else super()._user(place)
        return ["--http-proxy=false", *mapped]

    def _cpus(self, place: _Place) -> list[str]:
        """No flags: processes of this job start the container, which inherits their CPUs."""
        return []


RUNTIMES.register("docker", Docker())
RUNTIMES.register("podman", Podman())
