"""A container from a registry's image, run by podman: docker's command line, without a daemon or root rights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from servelab.engines.runtimes import RUNTIMES
from servelab.engines.runtimes.docker import Docker, _Place


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


RUNTIMES.register("podman", Podman())
