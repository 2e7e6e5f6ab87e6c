"""The least work of a model for a token: numbers multiplied and bytes read, from its config.json or its GGUF file.

Where files leave something open, the smaller figure counts: a limit made from these is then one that nothing exceeds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import Field

from servelab.assets import gguf
from servelab.assets.gguf import Metadata
from servelab.assets.model_shape import ModelShape, experts_of, shape_of_config
from servelab.core.credentials import leaves
from servelab.core.errors import ServelabError
from servelab.core.files import JsonPart


@dataclass(frozen=True)
class ModelFacts:
    """The known facts of a model; None if its files do not have them or are not on this machine."""

    weights_bytes: int | None = None
    shape: ModelShape | None = None
    parameters: int | None = None
    """The number of values in its weights."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """Its `config.json`; empty for a GGUF file."""


def read_facts(path: Path) -> ModelFacts:
    """The facts of a GGUF file or a Hugging Face folder; `ServelabError` if they cannot be read."""
    if path.is_file():
        return _gguf_facts(path)
    sizes = {file.name: file.stat().st_size for file in path.iterdir() if file.is_file()}
    try:
        config = json.loads((path / "config.json").read_bytes())
    except (OSError, ValueError) as error:
        raise ServelabError(f"{path / 'config.json'}: {error}") from None
    return ModelFacts(weights_bytes=safetensors_bytes(sizes), shape=shape_of_config(config), config=config)


def safetensors_bytes(sizes: Mapping[str, int]) -> int | None:
    """Bytes of a folder's safetensors; only those named `model…` if there is a second copy (`consolidated…`)."""
    weights = {name: size for name, size in sizes.items() if name.endswith(".safetensors") and "/" not in name}
    named = {name: size for name, size in weights.items() if name.startswith("model")}
    return sum((named or weights).values()) or None


def _gguf_facts(path: Path) -> ModelFacts:
    """The facts of a GGUF file, from the keys of the GGUF specification (`<architecture>.block_count` and so on)."""
    metadata = gguf.Metadata(path)
    architecture = metadata.need("general.architecture")
    layers = int(metadata.need(f"{architecture}.block_count"))
    heads = int(metadata.need(f"{architecture}.attention.head_count"))
    head_dim = int(metadata.need(f"{architecture}.embedding_length")) // heads
    key = metadata.get(f"{architecture}.attention.key_length", head_dim)
    value = metadata.get(f"{architecture}.attention.value_length", head_dim)
    shape = ModelShape(
        layers=layers,
        attention_heads=heads,
        kv_heads=int(metadata.get(f"{architecture}.attention.head_count_kv", heads)),
        values_per_kv_head=int(key) + int(value),
        max_positions=metadata.get(f"{architecture}.context_length"),
        full_layers=layers,
    )
    return ModelFacts(weights_bytes=path.stat().st_size, shape=shape, parameters=metadata.parameters)


class ModelWork(JsonPart):
    """The least work of a model for a token. Parameters are those of matrices; norms and embeddings do not count."""

    body_parameters: float = Field(description="Parameters that every token uses: all layers without their experts.")
    head_parameters: float = Field(description="Parameters of the output layer, used once per output token.")
    expert_parameters: float = Field(0.0, description="Parameters of one expert in every layer that has experts.")
    experts: int = Field(0, description="Experts of a layer to choose from; 0 for a dense model.")
    experts_per_token: int = Field(0, description="Experts that a token uses in each of these layers.")
    body_bytes: float = Field(description="Bytes of the body's parameters, as stored.")
    head_bytes: float = Field(description="Bytes of the output layer, as stored.")
    expert_bytes: float = Field(0.0, description="Bytes of one expert in every layer that has experts.")
    bits: float = Field(description="Bits of the narrowest numbers among these weights.")
    full_layers: int = Field(description="Layers in which a token attends to all tokens before it.")
    window_layers: int = Field(0, description="Layers in which it attends to the last `window_tokens`.")
    window_tokens: int = Field(0, description="Tokens of that window.")
    attention_operations: float = Field(
        description="Operations with which a token attends to one token before it, in one layer."
    )
    kv_values: float = Field(description="Values of one token in the KV cache of one layer.")

    @property
    def active_parameters(self) -> float:
        """Parameters that a token uses, without the output layer."""
        return self.body_parameters + self.experts_per_token * self.expert_parameters


_DENSE = re.compile(r"llama|mistral|qwen2|qwen3|qwen3_5(_text)?|phi3|olmo2|granite|smollm3|glm4|gemma[23]?|gemma3_text")
_EXPERTS = re.compile(r"mixtral|qwen2_moe|qwen3_moe|qwen3_next|qwen3_5_moe(_text)?|deepseek_v[23]|kimi_k2|gpt_oss")
"""Values of `model_type` whose layers we know: attention as in `model_shape`, and gated MLPs of three matrices."""


def work_of_config(config: Mapping[str, Any]) -> ModelWork | None:
    """The work by a Hugging Face `config.json`, of its text model; None for a `model_type` that is not known here."""
    text = config.get("text_config", config)
    kind, shape = str(text.get("model_type", config.get("model_type"))), shape_of_config(config)
    needed = ("hidden_size", "vocab_size", "intermediate_size")
    if (
        shape is None
        or not (_DENSE.fullmatch(kind) or _EXPERTS.fullmatch(kind))
        or any(not text.get(name) for name in needed)
    ):
        return None
    hidden, bits = text["hidden_size"], stored_bits(config)
    attention, operations = _attention(text, shape.attention_heads, shape.kv_heads, shape.values_per_kv_head)
    attending = shape.full_layers + shape.window_layers
    body = attending * attention + (shape.layers - attending) * _linear_attention(text)
    experts = experts_of(text) if _EXPERTS.fullmatch(kind) else 0
    moe_layers = _moe_layers(text, shape.layers) if experts else 0
    expert_size = text.get("moe_intermediate_size") or text["intermediate_size"]
    shared = text.get("shared_expert_intermediate_size") or (text.get("n_shared_experts") or 0) * expert_size
    body += (shape.layers - moe_layers) * 3 * hidden * text["intermediate_size"]
    body += moe_layers * (3 * hidden * shared + hidden * experts)
    expert, head = moe_layers * 3 * hidden * expert_size, hidden * text["vocab_size"]
    return ModelWork(
        body_parameters=body,
        head_parameters=head,
        expert_parameters=expert,
        experts=experts,
        experts_per_token=(text.get("num_experts_per_tok") or 1) if experts else 0,
        body_bytes=body * bits / 8,
        head_bytes=head * bits / 8,
        expert_bytes=expert * bits / 8,
        bits=bits,
        full_layers=shape.full_layers,
        window_layers=shape.window_layers,
        window_tokens=shape.window_tokens,
        attention_operations=operations,
        kv_values=shape.kv_heads * shape.values_per_kv_head,
    )


def _attention(text: Mapping[str, Any], heads: int, kv_heads: int, kv_values: int) -> tuple[float, float]:
    """Parameters of a layer's attention, and its operations for a pair of tokens: query × key and weight × value."""
    hidden = text["hidden_size"]
    if rank := text.get("kv_lora_rank"):
        rope, nope, value = (text.get(f"{name}_head_dim", 0) for name in ("qk_rope", "qk_nope", "v"))
        query = heads * (nope + rope)
        queries = text.get("q_lora_rank") or 0
        first = hidden * queries + queries * query if queries else hidden * query
        return first + hidden * (rank + rope) + rank * heads * (nope + value) + heads * value * hidden, 2 * (
            query + heads * value
        )
    head_dim = kv_values // 2
    return 2 * hidden * heads * head_dim + 2 * hidden * kv_heads * head_dim, 4 * heads * head_dim


def _linear_attention(text: Mapping[str, Any]) -> float:
    """Parameters of a layer with a gated delta net (Yang et al., arXiv:2412.06464): four projections in, one out."""
    keys, values = (
        text.get(f"linear_num_{name}_heads", 0) * text.get(f"linear_{name}_head_dim", 0) for name in ("key", "value")
    )
    return float(text["hidden_size"] * (2 * keys + 3 * values))


def _moe_layers(text: Mapping[str, Any], layers: int) -> int:
    """Layers with experts: all but the first dense ones, those that are named dense, and those between the steps."""
    step, dense = text.get("decoder_sparse_step") or 1, set(text.get("mlp_only_layers") or [])
    first = text.get("first_k_dense_replace") or 0
    return sum(layer >= first and layer not in dense and (layer + 1) % step == 0 for layer in range(layers))


_NARROWEST = 4.0
"""Bits of a quantised weight where a format is not known: the narrowest that engines serve widely."""


def stored_bits(config: Mapping[str, Any]) -> float:
    """Bits of the narrowest weights by `quantization_config`; 16 without one."""
    found = config.get("quantization_config") or config.get("text_config", {}).get("quantization_config")
    if not found:
        return 16.0
    given = [value for _, name, value in leaves(found) if name in ("bits", "num_bits", "weight_bits")]
    numbers = [float(value) for value in given if isinstance(value, int | float) and value]
    if numbers:
        return min(numbers)
    is_fp8 = found.get("quant_method") in ("fp8", "fbgemm_fp8") or found.get("quant_algo") == "FP8"
    return 8.0 if is_fp8 else _NARROWEST


def stored_format(config: Mapping[str, Any]) -> str | None:
    """Number format of the weights by `quantization_config`, as `known_models.BITS` names it; None without one."""
    if (bits := stored_bits(config)) == 16:
        return None
    found = config.get("quantization_config") or config["text_config"]["quantization_config"]
    words = json.dumps({name: value for name, value in found.items() if not name.startswith("kv_")}).lower()
    wide = ("fp8" if "fp8" in words or "float" in words else "int8") if bits > 4.5 else "int4"
    return next((kind for kind in ("nvfp4", "mxfp4") if kind in words), wide)


def work_of_gguf(path: Path) -> ModelWork:
    """The work by the tensors of a GGUF file; `ServelabError` if it cannot be read."""
    metadata = Metadata(path)
    architecture = metadata.need("general.architecture")

    def value(key: str, default: Any = None) -> Any:
        return metadata.get(f"{architecture}.{key}", default)

    layers = int(value("block_count", 0)) - int(value("nextn_predict_layers", 0))
    tensors = [tensor for tensor in metadata.tensors() if tensor.dimensions > 1]
    blocks = [(int(found[1]), each) for each in tensors if (found := re.match(r"blk\.(\d+)\.", each.name))]
    blocks = [(layer, each) for layer, each in blocks if layer < layers]
    body = [each for _, each in blocks if "_exps." not in each.name]
    routed = [each for _, each in blocks if "_exps." in each.name]
    head = [each for each in tensors if each.name == "output.weight"] or [
        each for each in tensors if each.name == "token_embd.weight"
    ]
    recurrent = {layer for layer, each in blocks if ".ssm_" in each.name}
    attending = {layer for layer, each in blocks if re.search(r"\.attn_(k|qkv|kv_a_mqa)\.", each.name)} - recurrent
    heads, experts = int(_least(value("attention.head_count", 0))), int(value("expert_count", 0))
    head_dim = int(value("embedding_length", 0)) // max(heads, 1)
    key, content = int(value("attention.key_length", head_dim)), int(value("attention.value_length", head_dim))
    window = int(_least(value("attention.sliding_window", 0)))
    bits = [8 * each.size_bytes / each.elements for each in (*body, *routed, *head)]
    kinds = body, head, routed
    body_values, head_values, routed_values = (float(sum(each.elements for each in kind)) for kind in kinds)
    body_bytes, head_bytes, routed_bytes = (float(sum(each.size_bytes for each in kind)) for kind in kinds)
    return ModelWork(
        body_parameters=body_values,
        head_parameters=head_values,
        expert_parameters=routed_values / max(experts, 1),
        experts=experts,
        experts_per_token=int(value("expert_used_count", 0)),
        body_bytes=body_bytes,
        head_bytes=head_bytes,
        expert_bytes=routed_bytes / max(experts, 1),
        bits=min(bits, default=16.0),
        full_layers=0 if window else len(attending),
        window_layers=len(attending) if window else 0,
        window_tokens=window,
        attention_operations=2 * heads * (key + content),
        kv_values=int(_least(value("attention.head_count_kv", heads))) * (key + content),
    )


def _least(value: Any) -> Any:
    """The value, or the smallest of a value for each layer."""
    return min(value, default=0) if isinstance(value, list) else value
