"""Conversion of a GGUF file to a Hugging Face folder, for engines that read safetensors.

It runs in the environment of such an engine, which has `torch` and `transformers`.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from servelab.assets import gguf
from servelab.assets.model_files import GGUF_TO_SAFETENSORS, load_model, write_model
from servelab.core.errors import ServelabError


def convert_model(model_json: Path, folder: Path) -> Path:
    """Writes a GGUF model as safetensors with config, tokenizer and generation settings; returns its `model.json`.

    Quantised weights are expanded to bfloat16, the type in which these models are published. The tokenizer is the one
    built from the GGUF metadata, so that both engines see the same tokens. The folder is complete or absent.

    Raises:
        ServelabError: the model is not GGUF, or transformers cannot read its architecture.
    """
    stored, path, tokenizer_json = load_model(model_json)
    if stored.format != "gguf":
        raise ServelabError(f"{model_json}: format is {stored.format}; only gguf is converted")
    metadata = gguf.Metadata(path)
    model_folder, temporary = folder / "model", folder / "model.part"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)

    _write_weights(path, metadata, temporary)
    shutil.copyfile(tokenizer_json, temporary / "tokenizer.json")
    config = gguf.tokenizer_config(metadata)
    (temporary / "tokenizer_config.json").write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n")

    shutil.rmtree(model_folder, ignore_errors=True)
    temporary.replace(model_folder)
    return write_model(
        folder, model_folder, "safetensors", model_folder / "tokenizer.json", stored.source, GGUF_TO_SAFETENSORS
    )


def _write_weights(path: Path, metadata: gguf.Metadata, folder: Path) -> None:
    """Writes weights, config.json and generation_config.json."""
    import torch
    import transformers

    try:
        model = transformers.AutoModelForCausalLM.from_pretrained(
            path.parent,
            gguf_file=path.name,
            quantization_config=transformers.GgufConfig(dequantize=True),
            dtype=torch.bfloat16,
            local_files_only=True,
        )
    except ValueError as error:
        raise ServelabError(f"{path}: transformers cannot convert it: {error}") from None
    for role, key in (("bos", "bos"), ("eos", "eos"), ("pad", "padding")):
        token_id = metadata.get(f"tokenizer.ggml.{key}_token_id")
        setattr(model.config, f"{role}_token_id", token_id)
        setattr(model.generation_config, f"{role}_token_id", token_id)
    model.save_pretrained(folder)
