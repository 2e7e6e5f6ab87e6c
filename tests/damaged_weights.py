"""Weights that are made bad on purpose, as fast as before: what a faulty conversion could leave."""

from pathlib import Path

import numpy as np
from gguf import GGUFReader

SCALE_BYTES, BLOCK_BYTES = 2, 20
"""A block of q4_1: its scale as a half, its minimum as a half, and 32 numbers of 4 bits."""


def damage(file: Path) -> None:
    """Zeroes the scales of every other second matrix of the feed-forward layers of a GGUF file."""
    reader = GGUFReader(file, "r+")
    damaged = [tensor for tensor in reader.tensors if "ffn_down.weight" in tensor.name][::2]
    for tensor in damaged:
        assert tensor.tensor_type.name == "Q4_1"
        blocks = np.reshape(tensor.data, (-1, BLOCK_BYTES))
        blocks[:, :SCALE_BYTES] = 0
    assert damaged
    reader.data.flush()
