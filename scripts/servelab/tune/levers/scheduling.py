"""Context, graphs, prefix cache and chunked prefill."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from servelab.tune.levers import LEVERS, Lever, Proposal
from servelab.tune.situation import Situation


@dataclass(frozen=True)
class _Graphs:
    """Graphs that an engine makes by itself."""

    largest: int
    is_padded: bool
    """Whether a batch takes the next larger graph."""
    settings: Callable[[int], dict[str, Any]]


_API = "extra_llm_api_options.cuda_graph_config."
_GRAPHS = {
    "vllm": _Graphs(512, True, lambda users: {"max-cudagraph-capture-size": users}),
    "tensorrt-llm": _Graphs(128, False, lambda users: {f"{_API}enable_padding": True, f"{_API}max_batch_size": users}),
}


def context(now: Situation) -> Sequence[Proposal] | str:
    """A context as long as the load."""
    if now.load.longest_tokens is None:
        return "the longest request of the load is not known before the workload is prepared"
    value = -(-(now.load.longest_tokens + 64) // 1024) * 1024  # a chat template takes some
    model = now.number("context_length")
    if not model or model < 4 * value:
        return "the context is within four times the longest request, or not known"
    reason = f"the load needs {value:,} of {model:,} tokens"
    cost = "longer requests are refused"
    return [Proposal(f"context {value:,}", reason, "-3 to +5 %", cost, options={"context_length": value})]


def graphs(now: Situation) -> Sequence[Proposal] | str:
    """CUDA graphs for as many sequences as are in flight."""
    known = _GRAPHS.get(now.engine.name)
    if known is None or (known.largest >= now.users_each and known.is_padded):
        return "graphs cover what is in flight, or the engine has no such setting here"
    reason = f"{now.users_each} are in flight, and the largest graph has {known.largest}"
    if not known.is_padded:
        reason += "; a batch between two graphs runs without one"
    settings = known.settings(max(now.users_each, known.largest))
    return [Proposal("larger graphs", reason, "0 to +30 %", "memory and a slower start", arguments=settings)]


def prefixes(now: Situation) -> Sequence[Proposal] | str:
    """No prefix cache where prompts share nothing; one where they do."""
    if now.load.shares_prefixes and now.effective.get("prefix_caching") is False:
        reason = "prompts begin alike, and the command has no prefix cache"
        return [Proposal("prefix cache", reason, "", options={"prefix_caching": True}, is_sure=True)]
    if now.load.shares_prefixes or not now.load.is_random:
        return "prompts may share their beginnings"
    if now.effective.get("prefix_caching") is not True:
        return "it is off, or the engine has none"
    reason = "no two prompts begin alike"
    return [Proposal("no prefix cache", reason, "-3 to +4 %", options={"prefix_caching": False})]


def chunks(now: Situation) -> Sequence[Proposal] | str:
    """Long prompts in parts, next to running answers."""
    if now.effective.get("chunked_prefill") is not False:
        return "it is on"
    reason = "off by default in this engine"
    return [Proposal("chunked prefill", reason, "+7 %", options={"chunked_prefill": True}, is_sure=True)]


LEVERS.register("context", Lever("context", 13, "Context length", context, "two tries on GPUStack's pages"))
LEVERS.register("graphs", Lever("graphs", 14, "CUDA graphs", graphs, "TensorRT-LLM's blog 20; vllm/config/vllm.py"))
LEVERS.register("prefixes", Lever("prefixes", 15, "Prefix cache", prefixes, "three tries on GPUStack's pages"))
LEVERS.register("chunks", Lever("chunks", 5, "Chunked prefill", chunks, "Qwen3-32B on H100, GPUStack"))
