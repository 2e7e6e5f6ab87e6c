"""Numbers that take less memory, and more memory for the KV cache."""

from __future__ import annotations

from collections.abc import Sequence

from servelab.tune.levers import Proposal, lever
from servelab.tune.situation import Situation

_GAIN = {"fp8": "+3 to +51 %", "nvfp4": "", "int8": "about +7 %", "int4": "-27 to +46 %", "ascend": "-4 to +7 %"}
_ASKED = "answers may change: they are asked"
_MANY = 200_000
"""Tokens in flight at a server that fill many a KV cache; where the model's shape is not known."""
_LARGE, _MORE = 0.95, 0.05


@lever("weights", 2, "Weights", "GPUStack's pages on H100, H200, 4090, A100, 910B")
def weights(now: Situation) -> Sequence[Proposal] | str:
    """Published weights of the model, and the engine's own FP8 where there are none."""
    found = [_published(now, each) for each in now.smaller_formats]
    made = now.engine.traits.made_weights.get("fp8")
    if made and now.board.has_fp8 and now.model.format == "bf16" and "fp8" not in now.model.others:
        label, reason = "FP8 weights, made at the start", "the board multiplies FP8 numbers"
        reason += "; no FP8 weights of this model are known here"
        found.insert(0, Proposal(label, reason, _GAIN["fp8"], _ASKED, arguments={**made}, is_sure=True))
    return found or f"no smaller weights than {now.model.format} are known here that this board or load gains from"


def _published(now: Situation, number_format: str) -> Proposal:
    size, model = now.model.weights_in(number_format), now.model.others[number_format]
    reason = "less to read for each token, and more memory for the KV cache"
    if number_format in ("fp8", "int4") and not now.board.has_fp8:
        reason = "the board computes in 16 bits, but a server needs fewer accelerators or has more KV cache"
    return Proposal(
        f"{'INT8' if number_format == 'ascend' else number_format.upper()} weights",
        f"{model}{f' ({size:.0f} GiB)' if size else ''}: {reason}",
        _GAIN[number_format],
        _ASKED,
        model=model,
        arguments={**now.engine.traits.own_weights.get(number_format, {})},
        is_sure=now.board.has_fp8 and (number_format == "fp8" or (now.board.memory_gib or 80) < 30),
    )


@lever("memory-share", 6, "Memory for the KV cache", "GLM-5.2 on H200, GPUStack")
def share(now: Situation) -> Sequence[Proposal] | str:
    """A larger share of the memory."""
    known = now.effective.get("memory_share")
    name = now.engine.traits.share_argument or "memory_share"
    if now.board.is_cpu or not isinstance(known, float):
        return "the engine has no such setting here"
    own = now.engine.defaults(now.version, now.board, now.options, now.arguments).get("memory_share")
    is_less = isinstance(own, float) and known < own  # typed, as the layout's own is `own`
    value = own if isinstance(own, float) and is_less else min(_LARGE, round(known + _MORE, 2))
    if now.engine.works_inside_share:  # others may find too little outside it
        value = _LARGE
    if known >= value:
        return f"the command has {known}"
    tokens = now.kv_tokens()
    if tokens and tokens > 2 * now.users_each * now.load.tokens:
        return f"the KV cache holds about {tokens:,} tokens, twice what the load needs"
    itself = f", {own} by the engine itself" * is_less
    reason = f"{known} now{itself}; more KV cache for {now.users_each} requests in flight"
    label, gain = f"memory share {value}", "0 to +134 %"
    is_option = name in now.engine.options
    given, arguments = ({name: value}, {}) if is_option else ({}, {name: value})
    return [Proposal(label, reason, gain, options=given, arguments=arguments, is_sure=is_less)]


@lever("kv-dtype", 7, "Numbers of the KV cache", "vLLM's blog, April 2026; GPUStack")
def kv_numbers(now: Situation) -> Sequence[Proposal] | str:
    """FP8 numbers in the KV cache."""
    value = now.engine.traits.fp8_kv_cache
    if not now.board.has_fp8 or value is None:
        return "board or engine has no FP8 attention"
    if now.effective.get("kv_cache_dtype") not in ("auto", None):
        return "the command sets it"
    tokens, least = now.kv_tokens(), now.kv_tokens(now.least_weights_gib)
    need = now.users_each * (now.load.prompt_tokens + now.load.answer_tokens // 2)
    if now.load.prompt_tokens < 7000 and (tokens or least or _MANY) > need:
        return "prompts are below 7,000 tokens, and the KV cache holds what is in flight, as far as is known"
    reason = f"{need:,} tokens are in flight; the KV cache holds twice the tokens of now"
    is_sure = (least or _MANY) < need  # also with the smallest weights
    return [Proposal("FP8 KV cache", reason, "-3 to +21 %", _ASKED, options={"kv_cache_dtype": value}, is_sure=is_sure)]
