"""Kernels of a mixture of experts."""

from __future__ import annotations

from collections.abc import Sequence

from servelab.tune.levers import LEVERS, Lever, Proposal
from servelab.tune.situation import Situation

_KERNELS = {"vllm": {"moe-backend": "deep_gemm"}}


def propose(now: Situation) -> Sequence[Proposal] | str:
    """DeepGEMM for FP8 experts on Hopper."""
    kernels = _KERNELS.get(now.engine.name)
    if now.model.arch != "moe" or now.model.format != "fp8" or kernels is None:
        return "the model has no FP8 experts, or the engine chooses by itself"
    if now.board.capability != 9.0:
        return "this is for Hopper"
    reason = "vLLM takes Triton first for FP8 blocks with tensor parallel on Hopper"
    return [Proposal("DeepGEMM", reason, "-6 to +3 %", arguments=kernels)]


LEVERS.register("moe-kernels", Lever("moe-kernels", 16, "Kernels of experts", propose, "vllm's oracle/fp8.py, 0.33.0"))
