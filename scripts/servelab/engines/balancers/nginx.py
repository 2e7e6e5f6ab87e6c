"""nginx, from the PATH."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from servelab.engines.balancers import BALANCERS, Balancer

_CONFIGURATION = Path(__file__).with_suffix(".conf").read_text(encoding="utf-8")
"""Tokens are passed on as they come, and a failed request is not sent again: its failure is the configuration's."""


class Nginx(Balancer):
    """The server with the fewest connections."""

    name = "nginx"
    is_process = True
    image = "docker.io/library/nginx:1.28"

    def command(self, ports: tuple[int, int], servers: Sequence[int], folder: Path) -> list[str]:
        return ["nginx", "-p", str(folder), "-e", "stderr", "-c", "nginx.conf"]

    def files(self, ports: tuple[int, int], servers: Sequence[int], folder: Path) -> dict[str, str]:
        lines = "\n".join(f"    server 127.0.0.1:{each} max_fails=0;" for each in servers)
        return {"nginx.conf": _CONFIGURATION.format(servers=lines, port=ports[0])}

    def version_command(self) -> list[str]:
        return ["nginx", "-v"]


BALANCERS.register(Nginx.name, Nginx())
