"""Devices: what an engine computes on. Each kind is one file that registers itself.

`servelab.lease` lends them, one run at a time.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from servelab.errors import Outage
from servelab.registry import Registry


@dataclass(frozen=True)
class Device:
    """One accelerator of this machine."""

    index: str
    """How the engine is told to use it."""
    key: str
    """The same for every process of the machine, however few devices each may see; names its lock."""
    name: str
    driver: str | None = None
    memory_bytes: int | None = None


class DeviceKind(Protocol):
    """One kind of device."""

    @property
    def name(self) -> str:
        """Its name in a study."""
        ...

    @property
    def apptainer_flags(self) -> tuple[str, ...]:
        """Flags that let a container see this kind of device: its nodes are there, its driver may not be."""
        ...

    def find(self) -> list[Device]:
        """The devices that this process may use: all, or those a batch system gave it. `Outage` if none can be told."""
        ...

    def environment(self, devices: Sequence[Device]) -> dict[str, str]:
        """Environment variables that make an engine use these devices and no other."""
        ...

    def threads(self, cores: int) -> int:
        """CPU cores of a workflow's `cores` that a run must have for itself, so that nothing disturbs its figures."""
        ...


def ask(command: Sequence[str], timeout_s: float = 60.0) -> str:
    """What the vendor's tool prints; `Outage` if it is missing, fails or does not end in time."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=timeout_s).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise Outage(f"cannot ask for devices: {error}") from error


def visible(devices: list[Device], variable: str | None) -> list[Device]:
    """The devices that a visibility variable (`0,2`, or the beginning of a key) leaves; all if it is unset."""
    if variable is None:
        return devices
    wanted = [token.strip() for token in variable.split(",") if token.strip()]
    return [d for token in wanted for d in devices if token == d.index or (len(token) > 3 and d.key.startswith(token))]


DEVICES: Registry[DeviceKind] = Registry("device")
DEVICES.load(__name__)
