"""More memory for the KV cache, or smaller numbers in it."""

from __future__ import annotations

from collections.abc import Sequence

from servelab.tune.levers import LEVERS, Lever, Proposal
from servelab.tune.situation import Situation

_MANY = 200_000
"""Tokens in flight at a server that fill many a KV cache; where the model's shape is not known."""
_SHARE = {"vllm": 0.95, "vllm-ascend": 0.95, "tensorrt-llm": 0.95, "sglang": 0.88}
_FP8 = {"vllm": "fp8", "sglang": "fp8_e4m3", "tensorrt-llm": "fp8"}


def share(now: Situation) -> Sequence[Proposal] | str:
    """A larger share of the memory."""
    value = _SHARE.get(now.engine.name)
    known = now.effective.get("memory_share")
    if now.board.is_cpu or value is None:
        return "the engine has no such setting here"
    if isinstance(known, float) and known >= value:
        return f"the command has {known}"
    tokens = now.kv_tokens()
    if tokens and tokens > 2 * now.users_each * now.load.tokens:
        return f"the KV cache holds about {tokens:,} tokens, twice what the load needs"
    saw = f"{known} by default" if known else "the engine's own formula is careful"
    reason = f"{saw}; more KV cache for {now.users_each} requests in flight"
    return [Proposal(f"memory share {value}", reason, "0 to +134 %", options={"memory_share": value})]


def dtype(now: Situation) -> Sequence[Proposal] | str:
    """FP8 numbers in the KV cache."""
    value = _FP8.get(now.engine.name)
    if not now.board.has_fp8 or value is None:
        return "board or engine has no FP8 attention"
    if now.effective.get("kv_cache_dtype") not in ("auto", None):
        return "the command sets it"
    need, tokens = now.users_each * (now.load.prompt_tokens + now.load.answer_tokens // 2), now.kv_tokens()
    if now.load.prompt_tokens < 7000 and (tokens or _MANY) > need:
        return "prompts are below 7,000 tokens, and the KV cache holds what is in flight, as far as it can be told"
    reason = f"{need:,} tokens are in flight; the KV cache holds twice as many"
    return [
        Proposal(
            "FP8 KV cache",
            reason,
            "-3 to +21 %",
            "answers may change: they are asked",
            options={"kv_cache_dtype": value},
            is_sure=True,
        )
    ]


LEVERS.register("memory-share", Lever("memory-share", 6, "Memory for the KV cache", share, "GLM-5.2 on H200, GPUStack"))
LEVERS.register("kv-dtype", Lever("kv-dtype", 7, "Numbers of the KV cache", dtype, "vLLM's blog, April 2026; GPUStack"))
