"""A study for the preflight, made of real files: a model folder whose weights are a hole, and an engine on the host.

The engine is a double of a Python with vLLM, which prints its version.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

VERSION = "0.11.0"
# Shape and size of Qwen3-32B.
CONFIG = {
    "num_hidden_layers": 64,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "hidden_size": 5120,
    "max_position_embeddings": 40960,
}
WEIGHTS_BYTES = 65_524_246_528

DOUBLE = f"#!/bin/sh\necho {VERSION}\n"


def make_model(folder: Path, config: dict[str, Any] | None = None) -> Path:
    """A model folder; its weights take no room on the disk."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({**CONFIG, **(config or {})}))
    (folder / "tokenizer.json").write_text("{}")
    with (folder / "model.safetensors").open("wb") as weights:
        weights.truncate(WEIGHTS_BYTES)
    return folder


def make_engine(folder: Path) -> Path:
    """The double, described for runtime `host`."""
    program = folder / "python"
    program.write_text(DOUBLE)
    program.chmod(0o755)
    lock = folder / "vllm.host.yaml"
    lock.write_text(f"name: a double\nversion: {VERSION}\ncommand: {program}\n")
    return lock


def made_study(folder: Path) -> dict[str, Any]:
    """Two H100 for a model of 32 billion parameters; all checks are content with it."""
    return {
        "study": "made-32b",
        "title": "Made",
        "model": {
            "id": "made-32b",
            "source": {"kind": "path", "path": str(make_model(folder / "model")), "revision": "1"},
        },
        "hardware": {"accelerator": "NVIDIA H100", "device": "nvidia", "per_node": 8},
        "engines": {"vllm": {"version": VERSION, "runtime": "host", "lock": str(make_engine(folder))}},
        "objective": {"metric": "total_tokens_per_s", "on": "medium-2000x100"},
        "protocol": {"max_concurrency": 64},
        "baseline": {
            "label": "vLLM",
            "engine": "vllm",
            "options": {"tensor_parallel_size": 2, "context_length": 8192},
            "accelerators": 2,
        },
        "stages": [{"name": "sequences", "candidates": [{"options": {"max_num_seqs": 16}}]}],
        "workloads": ["medium-2000x100", "long-4000x200"],
    }
