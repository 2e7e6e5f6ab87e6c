"""A llama model with random weights as a GGUF file: it costs what a trained one of its shape costs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from gguf import GGUFWriter, LlamaFileType, TokenType
from tokenizers import pre_tokenizers

CONTROL = ("<|end|>", "<|start|>")
LETTERS = sorted(pre_tokenizers.ByteLevel.alphabet())
MERGES = [f"{first} {second}" for first in "abcdefghijklmnopqrstuvwxyz" for second in "aeiou"]
CHAT = "{% for message in messages %}{{ message['content'] }}{% endfor %}"


@dataclass(frozen=True)
class Shape:
    """Sizes of a model; `width` is a multiple of `heads`."""

    layers: int
    width: int
    heads: int
    inner: int
    context: int = 4096

    @property
    def cache_bytes_per_token(self) -> int:
        """Of keys and values in half precision."""
        return 2 * 2 * self.layers * self.width


def write_model(path: Path, shape: Shape, seed: int = 0) -> Path:
    """Writes the model in half precision; the same seed gives the same file."""
    draw = np.random.default_rng(seed)
    tokens = [*CONTROL, *LETTERS, *[merge.replace(" ", "") for merge in MERGES]]
    writer = GGUFWriter(path, "llama")
    writer.add_file_type(LlamaFileType.MOSTLY_F16)
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.inner)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.heads)
    writer.add_rope_dimension_count(shape.width // shape.heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([TokenType.CONTROL] * len(CONTROL) + [TokenType.NORMAL] * (len(tokens) - len(CONTROL)))
    writer.add_token_merges(MERGES)
    writer.add_eos_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_chat_template(CHAT)

    def matrix(name: str, rows: int, columns: int) -> None:
        values = draw.standard_normal((rows, columns), dtype=np.float32) / np.sqrt(columns)
        writer.add_tensor(f"{name}.weight", values.astype(np.float16))

    def norm(name: str) -> None:
        writer.add_tensor(f"{name}.weight", np.ones(shape.width, dtype=np.float32))

    matrix("token_embd", len(tokens), shape.width)
    matrix("output", len(tokens), shape.width)
    norm("output_norm")
    for layer in range(shape.layers):
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            matrix(f"blk.{layer}.{name}", shape.width, shape.width)
        for name in ("ffn_gate", "ffn_up"):
            matrix(f"blk.{layer}.{name}", shape.inner, shape.width)
        matrix(f"blk.{layer}.ffn_down", shape.width, shape.inner)
        norm(f"blk.{layer}.attn_norm")
        norm(f"blk.{layer}.ffn_norm")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
