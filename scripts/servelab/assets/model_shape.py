"""A model's size and shape, read from its files without loading the weights."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from servelab.assets import gguf
from servelab.core.errors import ServelabError

_FULL, _WINDOW = "full_attention", "sliding_attention"
"""Kinds in `layer_types` of a config.json whose layers keep keys and values: for all tokens, or for the last ones."""


@dataclass(frozen=True)
class ModelShape:
    """What a model keeps in its KV cache, and how it can be split over accelerators."""

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


@dataclass(frozen=True)
class ModelFacts:
    """What is known about a model; None if its files do not say it or are not on this machine."""

    weights_bytes: int | None = None
    shape: ModelShape | None = None
    parameters: int | None = None
    """The number of values in its weights."""


def read_facts(path: Path) -> ModelFacts:
    """The facts of a GGUF file or a Hugging Face folder; `ServelabError` if they cannot be read."""
    if path.is_file():
        return _gguf_facts(path)
    sizes = {file.name: file.stat().st_size for file in path.iterdir() if file.is_file()}
    try:
        config = json.loads((path / "config.json").read_bytes())
    except (OSError, ValueError) as error:
        raise ServelabError(f"{path / 'config.json'}: {error}") from None
    return ModelFacts(weights_bytes=safetensors_bytes(sizes), shape=shape_of_config(config))


def safetensors_bytes(sizes: Mapping[str, int]) -> int | None:
    """Bytes of a folder's safetensors; only those named `model…` if there is a second copy (`consolidated…`)."""
    weights = {name: size for name, size in sizes.items() if name.endswith(".safetensors") and "/" not in name}
    named = {name: size for name, size in weights.items() if name.startswith("model")}
    return sum((named or weights).values()) or None


def shape_of_config(config: Mapping[str, Any]) -> ModelShape | None:
    """The shape from a Hugging Face `config.json`; None if it does not have the usual keys.

    The keys are those of transformers' configuration classes: `num_hidden_layers`, `num_attention_heads`,
    `num_key_value_heads`, `head_dim`, `layer_types`; of the text model if the model has several parts. A model with
    `kv_lora_rank` (multi-head latent attention, DeepSeek-V2, arXiv:2405.04434) keeps one compressed vector and the
    rotary part of the key instead, and every accelerator holds a copy of both.
    """
    text = config.get("text_config", config)
    layers, heads = text.get("num_hidden_layers"), text.get("num_attention_heads")
    if not isinstance(layers, int) or not isinstance(heads, int):
        return None
    if rank := text.get("kv_lora_rank"):
        kv_heads, values = 1, rank + text.get("qk_rope_head_dim", 0)
    else:
        kv_heads = text.get("num_key_value_heads") or heads
        head_dim = text.get("head_dim") or (text["hidden_size"] // heads if "hidden_size" in text else None)
        if head_dim is None:
            return None
        values = 2 * head_dim
    window = text.get("sliding_window") if text.get("use_sliding_window", True) else None
    kinds = text.get("layer_types") or _kinds(layers, text.get("full_attention_interval"))
    window_layers = kinds.count(_WINDOW) if window else 0
    full_layers = kinds.count(_FULL) + (0 if window else kinds.count(_WINDOW))
    return ModelShape(
        layers=layers,
        attention_heads=heads,
        kv_heads=kv_heads,
        values_per_kv_head=values,
        max_positions=text.get("max_position_embeddings"),
        full_layers=full_layers,
        window_layers=window_layers,
        window_tokens=window or 0,
    )


def _kinds(layers: int, interval: int | None) -> list[str]:
    """Kinds of layers without `layer_types`: all attend to all tokens, or each so-many-th one, the others recurrent."""
    return [_FULL if not interval or (layer + 1) % interval == 0 else "linear_attention" for layer in range(layers)]


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
