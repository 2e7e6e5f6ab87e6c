"""A container of a registry's image, by podman: docker's command line without a daemon, for a user without rights too.

What starts the container is no child of the client either, so it ends the same way as docker's.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import ClassVar

from servelab.runtimes import RUNTIMES, Needs
from servelab.runtimes.docker import Docker


@dataclass(frozen=True)
class Podman(Docker):
    """The image is in the user's store."""

    name: str = "podman"
    client_variables: ClassVar[tuple[str, ...]] = ("CONTAINER", "DBUS_SESSION_BUS_ADDRESS")

    def _user(self) -> list[str]:
        """It hands the host's proxies on unless told not to; without rights, users are mapped to the caller's own."""
        mapped = ["--userns=keep-id", "--group-add=keep-groups"] if os.geteuid() else super()._user()
        return ["--http-proxy=false", *mapped]

    def _cpus(self, needs: Needs) -> list[str]:
        """None to name: its containers are made by processes of this job and inherit what those may use."""
        return []


RUNTIMES.register("podman", Podman())
