"""SGLang's router, from the PATH: https://docs.sglang.io, compared with release 0.3.2."""

from __future__ import annotations

from servelab.engines.balancers import BALANCERS
from servelab.engines.balancers.vllm_router import VllmRouter


class SglangRouter(VllmRouter):
    """`sglang-router`; vLLM's is made from it and has the same flags."""

    name = "sglang-router"
    program = ("sglang-router", "launch")

    def version_command(self) -> list[str]:
        return ["sglang-router", "--version"]


BALANCERS.register(SglangRouter.name, SglangRouter())
