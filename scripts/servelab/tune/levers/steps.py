"""The limits of a step, its graphs, and settings that hold the engine back."""

from __future__ import annotations

from collections.abc import Sequence

from servelab.engines.options import OPTIONS
from servelab.tune.levers import Proposal, lever
from servelab.tune.situation import Situation

_SWITCHES = {"enforce_eager": True, "chunked_prefill": False, "async-scheduling": False, "attention_backend": "off"}
"""Settings whose value is the slower one, as a rule."""
_SMALL, _LARGE = 8192, 16384
"""Most tokens of a step on boards below 60 GiB, and with experts: Qwen3-235B and GLM-5.2 crashed above (GPUStack)."""


@lever("undo", 8, "The engine's own settings", "effective defaults, read from the release")
def undo(now: Situation) -> Sequence[Proposal] | str:
    """Each setting of the command that is slower than what the engine would do by itself, given back to it."""
    own = now.engine.defaults(now.version, now.board, {}, {})
    found = []
    for name, default in own.items():
        value = now.effective.get(name)
        is_lower = name == "max_num_batched_tokens" and isinstance(value, int) and value < default  # type: ignore[operator]
        is_slower = is_lower or (name in _SWITCHES and value == _SWITCHES[name])
        if value == default or not (is_slower or name in ("max_num_batched_tokens", "gpu-layers")):
            continue
        given = next((each for each in now.arguments if now.engine.names.of(each) == name), None)
        if given is None and now.options.get(name) is None:
            continue  # it follows from the layout, say
        reason = f"the command sets {value}, the engine itself {default} on this board"
        label = f"{name.replace('_', ' ').replace('-', ' ')} {default}".lower()
        undone = {given: False} if given else {}
        options = {} if given else {name: None}
        found.append(Proposal(label, reason, "", options=options, arguments=undone, is_sure=is_slower))
    return found or "no setting of the command is known to hold the engine back"


@lever("chunks", 5, "Chunked prefill", "Qwen3-32B on H100, GPUStack")
def chunks(now: Situation) -> Sequence[Proposal] | str:
    """Long prompts in parts, next to running answers."""
    if now.effective.get("chunked_prefill") is not False:
        return "it is on"
    reason = "off by default in this engine"
    return [Proposal("chunked prefill", reason, "+7 %", options={"chunked_prefill": True}, is_sure=True)]


@lever("sequences", 9, "Sequences in a batch", "vllm/engine/arg_utils.py, 0.33.0")
def sequences(now: Situation) -> Sequence[Proposal] | str:
    """As many sequences as are in flight."""
    limit = now.number("max_num_seqs")
    if not limit:
        return "the engine's own limit is not known here"
    if now.users_each <= limit:
        return f"{now.users_each} in flight at a server are within the limit of {limit}"
    value = 1 << (now.users_each - 1).bit_length()
    if now.engine.reserves_context and (need := now.load.context):  # its slots share the context of the command
        whole = now.number("context_length") * (limit if now.options.get("context_length") else 1)
        value = min(value, 1 << max(0, (whole // need).bit_length() - 1))
        if value <= limit:
            return f"the context, here {whole or 'not known'}, holds {limit} requests of {need:,} tokens and no more"
    reason = f"{now.users_each} are in flight at a server, and {limit} at most in a batch"
    return [Proposal(f"{value} sequences", reason, "+2 to +16 %", options={"max_num_seqs": value}, is_sure=True)]


@lever("batched-tokens", 11, "Tokens in a step, and vLLM's mode", "GPUStack's pages; vllm/engine/arg_utils.py, 0.33.0")
def tokens(now: Situation) -> Sequence[Proposal] | str:
    """vLLM's mode, and one and two doublings above what the engine does by itself, or the command if that is more."""
    # a step of several prompts ends at the first in SGLang; llama.cpp computes parts of the size of the second
    smaller = [each for each in ("chunked-prefill-size", "ubatch-size") if now.number(each)]
    name = (smaller or ["max_num_batched_tokens"])[0]
    usual = now.engine.defaults(now.version, now.board, {}, now.arguments).get(name)
    default = max(now.number(name), usual if isinstance(usual, int) else 0)
    found = _mode(now)
    if not default:
        return found or "the engine's own limit is not known here"
    if now.load.prompt_tokens < 200 and not now.board.is_cpu:
        return found or "prompts are short: prefill is a small part of the work"
    if now.load.prompt_tokens * now.users_each < default:
        return found or f"all prompts in flight are fewer tokens than the limit of {default:,}"
    reason = f"{default:,} {'by default on this board' if default == usual else 'typed'}"
    cost = "more memory for activations, and longer gaps between tokens"
    most = _SMALL if (now.board.memory_gib or _LARGE) < 60 else _LARGE if now.model.arch == "moe" else 4 * default
    for each in (size for size in (2 * default, 4 * default) if size <= most):
        own, given = ({name: each}, {}) if name in OPTIONS else ({}, {name: each})
        if name == "ubatch-size" and each > now.number("max_num_batched_tokens"):
            own = {"max_num_batched_tokens": each}
        label = f"{each:,} tokens a step"
        found.append(Proposal(label, reason, "-21 to +3 %", cost, options=own, arguments=given))
    return found or f"steps of more than {most:,} tokens may run out of memory with this board or these experts"


def _mode(now: Situation) -> list[Proposal]:
    """vLLM's mode for throughput, which is no more than limits of a step, or for few users."""
    if not now.has("performance-mode") or now.board.is_cpu or now.arguments.get("performance-mode"):
        return []
    limits = f"{now.number('max_num_batched_tokens'):,} tokens and {now.number('max_num_seqs'):,} sequences"
    value, reason = "throughput", f"doubles what the command leaves open of {limits} a step"
    if now.users_each <= 32:
        value, reason = "interactivity", "a graph for every batch up to 32"
    return [Proposal(f"mode {value}", reason, "0 to +2 %", arguments={"performance-mode": value})]


@lever("context", 13, "Context length", "two tries on GPUStack's pages")
def context(now: Situation) -> Sequence[Proposal] | str:
    """A context as long as the load."""
    value, model = now.load.context, now.number("context_length")
    sizes = now.engine.parallel(now.options, now.arguments, now.accelerators)
    if value is None:
        return "the longest request of the load is not known before the workload is prepared"
    if not model or model < 4 * value:
        return "the context is within four times the longest request, or not known"
    if not now.engine.reserves_context and now.fits(sizes, context=model):
        return f"the KV cache holds one of {model:,} tokens, and only what is in flight takes memory"
    reason = f"the load needs {value:,} of {model:,} tokens"
    cost = "longer requests are refused"
    return [Proposal(f"context {value:,}", reason, "-3 to +5 %", cost, options={"context_length": value})]


@lever("graphs", 14, "CUDA graphs", "TensorRT-LLM's blog 20; vllm/config/vllm.py")
def graphs(now: Situation) -> Sequence[Proposal] | str:
    """CUDA graphs for as many sequences as are in flight; in some engines a batch between two takes none."""
    users, limit = now.users_each, now.engine.traits.graphs
    largest = limit and (now.number(limit.argument) or limit.default)
    if not limit or not largest or (limit.takes_next and users <= largest):
        return "graphs cover what is in flight, or the engine has no such setting here"
    reason = f"{users} are in flight, and the largest graph has {largest}"
    if not limit.takes_next:
        reason += "; a batch between two graphs runs without one"
    settings = {**limit.needs, limit.argument: max(users, largest)}
    return [Proposal("larger graphs", reason, "0 to +30 %", "memory and a slower start", arguments=settings)]
