"""Memory that a model keeps for each sequence and token, and the width of its layers, from its config.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_FULL, _WINDOW, _CHUNKED, _LINEAR = "full_attention", "sliding_attention", "chunked_attention", "linear_attention"
"""Kinds of layers, as in `layer_types` of a config.json; one of another kind keeps nothing."""
_FIRST_FULL = {"gemma3_text": 6, "cohere2": 4}
"""`model_type` → each so-many-th layer attends to all tokens, if neither `layer_types` nor a pattern is given."""


@dataclass(frozen=True)
class ModelShape:
    """A model's KV cache, how it can be split over accelerators, and its width."""

    layers: int
    attention_heads: int
    kv_heads: int
    values_per_kv_head: int
    """Values that a layer keeps per token and KV head, for key and value together."""
    max_positions: int | None
    """Longest sequence the model supports, in tokens."""
    full_layers: int
    """Layers that keep keys and values for all tokens of a sequence."""
    window_layers: int = 0
    """Layers that keep them for the last `window_tokens` tokens."""
    window_tokens: int = 0
    state_bytes: float = 0.0
    """Bytes of the states of linear attention, of all such layers and one sequence of any length."""
    state_layers: int = 0
    full_kv_heads: int = 0
    full_values_per_kv_head: int = 0
    """Of layers without a window, where the second is not 0: theirs differ from those with one (Gemma 4)."""
    copied_values: float = 0.0
    """Values of the weights that tensor parallelism does not split: the projections to compressed vectors."""
    is_latent: bool = False
    """Whether it keeps one compressed vector for all heads (multi-head latent attention)."""
    index_bytes: float = 0.0
    """Bytes per token that a layer of sparse attention keeps besides, to choose from."""
    hidden: int = 0
    widest: int = 0
    """Values between the two matrices of a layer's MLP, of all experts of a token together."""
    vocabulary: int = 0
    expert_share: float = 0.0
    """Share of the weights that is in experts, about."""
    experts_per_token: int = 0
    encoder_hidden: int = 0
    """Hidden values of the part that reads images, for a patch; 0 if there is none, or it is not of Qwen's kind."""
    encoder_widest: int = 0
    patches_per_image_token: int = 0
    values_per_image_token: int = 0
    """Values that it gives to the layers for each token of an image."""


def shape_of_config(config: Mapping[str, Any]) -> ModelShape | None:
    """The shape from a Hugging Face `config.json`; None if it does not have the usual keys.

    The keys are those of transformers' configuration classes: `num_hidden_layers`, `num_attention_heads`,
    `num_key_value_heads`, `head_dim`, `layer_types`; of the text model if the model has several parts. A model with
    `kv_lora_rank` (multi-head latent attention, DeepSeek-V2, arXiv:2405.04434) keeps one compressed vector and the
    rotary part of the key instead, and every accelerator holds a copy of both.
    """
    text = config.get("text_config") or config.get("transformer_layer_config") or config  # the last one of a draft
    layers, heads = text.get("num_hidden_layers"), text.get("num_attention_heads")
    if not isinstance(layers, int) or not isinstance(heads, int):
        return None
    rank, rope, query = text.get("kv_lora_rank"), text.get("qk_rope_head_dim", 0), text.get("q_lora_rank") or 0
    kv_heads = 1 if rank else text.get("num_key_value_heads") or heads
    head_dim = text.get("head_dim") or (text["hidden_size"] // heads if "hidden_size" in text else None)
    if not head_dim and not rank:
        return None
    kinds = _kinds(text, layers)[: layers - (text.get("num_kv_shared_layers") or 0)]  # the last ones read others'
    window = text.get("sliding_window") if text.get("use_sliding_window", True) else None
    window = text.get("attention_chunk_size") if _CHUNKED in kinds else window
    in_window, expert = kinds.count(_WINDOW) + kinds.count(_CHUNKED), text.get("moe_intermediate_size") or 0
    chosen = text.get("num_experts_per_tok") or text.get("top_k_experts") or 0
    return ModelShape(
        layers=layers,
        attention_heads=heads,
        kv_heads=kv_heads,
        values_per_kv_head=rank + rope if rank else 2 * (head_dim or 0),
        max_positions=text.get("max_position_embeddings"),
        full_layers=kinds.count(_FULL) + (0 if window else in_window),
        window_layers=in_window if window else 0,
        window_tokens=window or 0,
        state_bytes=kinds.count(_LINEAR) * _state_bytes(text),
        state_layers=kinds.count(_LINEAR),
        full_kv_heads=text.get("num_global_key_value_heads") or kv_heads,
        full_values_per_kv_head=2 * (text.get("global_head_dim") or 0),
        copied_values=layers * text.get("hidden_size", 0) * (rank + rope + query) if rank else 0.0,
        is_latent=bool(rank),
        index_bytes=text["index_head_dim"] * 33 / 32 if text.get("index_topk") else 0.0,  # FP8 and a scale for 128
        hidden=text.get("hidden_size", 0),
        widest=max(0 if expert else text.get("intermediate_size") or 0, expert * (chosen or 1)),
        vocabulary=text.get("vocab_size", 0),
        expert_share=_expert_share(text, layers),
        experts_per_token=chosen,
        **_encoder(config.get("vision_config") or {}),
    )


def _encoder(vision: Mapping[str, Any]) -> dict[str, int]:
    """The part that reads images, where it merges squares of patches; some of its layers give values of their own."""
    if not vision.get("spatial_merge_size") or not vision.get("out_hidden_size"):
        return {}
    return {
        "encoder_hidden": vision.get("hidden_size", 0),
        "encoder_widest": vision.get("intermediate_size", 0),
        "patches_per_image_token": vision["spatial_merge_size"] ** 2,
        "values_per_image_token": vision["out_hidden_size"] * (1 + len(vision.get("deepstack_visual_indexes") or ())),
    }


def _kinds(text: Mapping[str, Any], layers: int) -> Sequence[str]:
    """The kind of each layer, by the key that the model's family has for it."""
    if found := text.get("layer_types"):
        return list(found)
    if pattern := text.get("hybrid_override_pattern"):  # Nemotron-H: M is Mamba-2, * attention, - an MLP
        return [{"*": _FULL, "M": _LINEAR}.get(each, "none") for each in pattern]
    if linear := text.get("linear_attn_config"):  # Kimi-Linear; counted from 1
        return [_FULL if layer + 1 in linear["full_attn_layers"] else _LINEAR for layer in range(layers)]
    if text.get("attention_chunk_size"):  # Llama 4: chunks where positions are rotary
        every = text.get("no_rope_layer_interval") or 4
        rotary = text.get("no_rope_layers") or [(layer + 1) % every for layer in range(layers)]
        return [_CHUNKED if each else _FULL for each in rotary]
    if interval := text.get("full_attention_interval"):
        return [_FULL if (layer + 1) % interval == 0 else _LINEAR for layer in range(layers)]
    every = text.get("sliding_window_pattern") or _FIRST_FULL.get(str(text.get("model_type")))
    if isinstance(every, int) and text.get("sliding_window"):
        return [_FULL if (layer + 1) % every == 0 else _WINDOW for layer in range(layers)]
    return [_FULL] * layers


def _state_bytes(text: Mapping[str, Any]) -> float:
    """Bytes of one layer's state and of its short convolution: a gated delta net's, Kimi's or Mamba-2's."""
    width = 4 if "float32" in (text.get("mamba_ssm_dtype"), text.get("mamba_ssm_cache_dtype")) else 2
    if linear := text.get("linear_attn_config"):
        each, kernel = linear["num_heads"] * linear["head_dim"], linear.get("short_conv_kernel_size", 4)
        return float(each * linear["head_dim"] * 4 + 3 * each * (kernel - 1) * 2)
    if heads := text.get("mamba_num_heads"):
        inner, state = heads * text.get("mamba_head_dim", 64), text.get("ssm_state_size", 128)
        short = (inner + 2 * text.get("n_groups", 8) * state) * (text.get("conv_kernel", 4) - 1) * 2
        return float(inner * state * width + short)
    keys, values = (
        text.get(f"linear_num_{name}_heads", 0) * text.get(f"linear_{name}_head_dim", 0) for name in ("key", "value")
    )
    short = (2 * keys + values) * (text.get("linear_conv_kernel_dim", 4) - 1) * 2
    return float(values * text.get("linear_key_head_dim", 0) * width + short)


def experts_of(text: Mapping[str, Any]) -> int:
    """Experts of a layer to choose from; 0 for a dense model."""
    names = ("num_experts", "n_routed_experts", "num_local_experts")
    return next((int(text[name]) for name in names if text.get(name)), 0)


def _expert_share(text: Mapping[str, Any], layers: int) -> float:
    hidden = text.get("hidden_size") or 0
    routed = 3 * hidden * experts_of(text) * (text.get("moe_intermediate_size") or text.get("intermediate_size") or 0)
    others = 4 * hidden * hidden + 2 * hidden * (text.get("vocab_size") or 0) / layers
    return routed / (routed + others) if routed else 0.0
