"""A container from a registry's image, run by Apptainer: a child process of the workflow, on the host's network."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from servelab.engines.runtimes import RUNTIMES, Environment, Image, Needs
from servelab.engines.runtimes.containers import (
    INSIDE_HOME,
    PLANNED_IMAGE,
    ContainerRuntime,
    binds_of,
    call,
    planned_needs,
)
from servelab.machine.devices import DeviceKind

_IMAGE = "image.sif"


@dataclass(frozen=True)
class Apptainer(ContainerRuntime):
    """The image is stored as one file; a home folder beside it holds the engine's caches."""

    name: str = "apptainer"

    def enter(
        self, environment: Environment, command: list[str], variables: dict[str, str], needs: Needs
    ) -> tuple[list[str], dict[str, str]]:
        """See `Runtime.enter`; the container inherits only `variables`, which Apptainer recognises by a prefix.

        Apptainer shows all device nodes of the host, so devices have the same numbers inside.
        """
        assert environment.image is not None
        image = environment.image
        binds = [
            part
            for bind in binds_of(image, needs)
            for part in ("--bind", f"{bind.source}:{bind.target}{':ro' if bind.read_only else ''}")
        ]
        started = [*self._started(image, needs), *binds, *image.flags, str(image.file), *command]
        return started, _given({**environment.variables, **variables})

    def container(self, device: DeviceKind, count: int) -> list[str]:
        return self._started(PLANNED_IMAGE, planned_needs(device, count))

    def _started(self, image: Image, needs: Needs) -> list[str]:
        """The command up to the mounts."""
        return [*_exec(image), *needs.passthrough.flags.get(self.name, ())]

    def _fetch(self, reference: str, folder: Path) -> Path | None:
        call(["apptainer", "pull", "--force", str(folder / _IMAGE), f"docker://{reference}"])
        return folder / _IMAGE

    def _ask(self, image: Image, command: list[str], variables: dict[str, str]) -> tuple[list[str], dict[str, str]]:
        return [*_exec(image), *image.flags, str(image.file), *command], _given(variables)


def _exec(image: Image) -> list[str]:
    """Starts without the user's home folder, so that nothing installed there is used inside."""
    return ["apptainer", "exec", "--cleanenv", "--home", f"{image.home}:{INSIDE_HOME}"]


def _given(variables: dict[str, str]) -> dict[str, str]:
    return {f"APPTAINERENV_{name}": value for name, value in variables.items()}


RUNTIMES.register("apptainer", Apptainer())
