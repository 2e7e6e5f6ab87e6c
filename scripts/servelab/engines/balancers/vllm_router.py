"""vLLM's router, from the PATH: https://github.com/vllm-project/router, compared with release 0.1.17."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from servelab.engines.balancers import BALANCERS, Balancer

UNCHANGED = ("--policy", "cache_aware", "--disable-retries", "--disable-circuit-breaker")
"""The default policy; a request that fails fails the run, and is not sent again."""


class VllmRouter(Balancer):
    """`vllm-router`, by prefix."""

    name = "vllm-router"
    is_process = True
    ready_path = "/health"
    program: tuple[str, ...] = ("vllm-router",)

    def command(self, ports: tuple[int, int], servers: Sequence[int], folder: Path) -> list[str]:
        urls = [f"http://127.0.0.1:{server}" for server in servers]
        own = ["--host", "127.0.0.1", "--port", str(ports[0])]
        metrics = ["--prometheus-host", "127.0.0.1", "--prometheus-port", str(ports[1])]
        return [*self.program, "--worker-urls", *urls, *own, *metrics, *UNCHANGED]


BALANCERS.register(VllmRouter.name, VllmRouter())
