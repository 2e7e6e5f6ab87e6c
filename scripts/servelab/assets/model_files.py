"""Models: fetched into `results/models/<model_key>/`, converted to another format, and described by `model.json`."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from pydantic import TypeAdapter, ValidationError
from tokenizers import Tokenizer

from servelab.assets import gguf
from servelab.assets.model_work import ModelWork, work_of_config, work_of_gguf
from servelab.assets.pinned_file import StoredModel
from servelab.assets.sources import MODEL_SOURCES
from servelab.core.errors import ServelabError
from servelab.core.files import write_text
from servelab.core.run_spec import HubSource, ModelFormat, ModelSource


def fetch_model(source: ModelSource, folder: Path) -> Path:
    """Fetches a model into a folder, writes `model.json` last, and returns its path.

    A GGUF file gets a tokenizer.json built from its metadata; a Hugging Face folder must have its own, unless it is a
    draft or an adapter. Else `ServelabError`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = MODEL_SOURCES.get(source.kind)(source, folder)
    if path.is_dir():
        is_second = isinstance(source, HubSource) and source.whole
        kind, tokenizer = _check_safetensors(path, () if is_second else FOLDER_FILES)
    else:
        kind, tokenizer = "gguf", folder / "tokenizer.json"
        write_text(tokenizer, gguf.build_tokenizer(gguf.Metadata(path)).to_str())
    return write_model(folder, path, kind, tokenizer, source)


FOLDER_FILES = ("config.json", "tokenizer.json", "*.safetensors")
"""Patterns of the files that an engine needs in a Hugging Face folder."""


def _check_safetensors(folder: Path, needed: Sequence[str]) -> tuple[ModelFormat, Path]:
    """Format and tokenizer of a Hugging Face folder; `ServelabError` if a file is missing."""
    for pattern in needed:
        if not any(folder.glob(pattern)):
            raise ServelabError(f"{folder}: no `{pattern}`: not a Hugging Face model folder with safetensors")
    return "safetensors", folder / "tokenizer.json"


def write_model(
    folder: Path,
    path: Path,
    model_format: ModelFormat,
    tokenizer: Path,
    source: ModelSource,
    conversion: str | None = None,
) -> Path:
    """Writes `model.json` and returns its path; paths inside the folder are relative, so that it can be moved."""

    def shorten(file: Path) -> str:
        return os.path.relpath(file, folder) if file.is_relative_to(folder) else str(file)

    stored = StoredModel(
        path=shorten(path),
        format=model_format,
        tokenizer=shorten(tokenizer),
        source=source,
        conversion=conversion,
        work=_work(path),
    )
    model_json = folder / "model.json"
    stored.write(model_json)
    return model_json


def _work(path: Path) -> ModelWork | None:
    try:
        if path.is_file():
            return work_of_gguf(path)
        return work_of_config(json.loads((path / "config.json").read_bytes()))
    except (ServelabError, OSError, ValueError, LookupError, TypeError):
        return None  # the engine reports files that it cannot use


def load_model(model_json: Path) -> tuple[StoredModel, Path, Path]:
    """The content of a `model.json`, and the absolute paths of the model and of its tokenizer.json."""
    stored = StoredModel.read(model_json)
    folder = model_json.parent.absolute()
    return stored, folder / stored.path, folder / stored.tokenizer


def load_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer without the truncation and padding of its file, so that it counts every token. `ServelabError`."""
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises plain Exception
        raise ServelabError(f"{path}: not a readable tokenizer.json: {error}") from None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def parse_source(text: str) -> ModelSource:
    """A model source from JSON; `ServelabError` if it is not valid."""
    try:
        source: ModelSource = TypeAdapter(ModelSource).validate_json(text)
        return source
    except ValidationError as error:
        first = error.errors()[0]
        raise ServelabError(f"model source: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None


GGUF_QUANTIZER = "gguf-quantize 1"
GGUF_TO_SAFETENSORS = "gguf-to-safetensors 1"

CONVERTERS = {("gguf", "safetensors"): GGUF_TO_SAFETENSORS}
"""(format read, format written) → converter."""


def quantize_model(model_json: Path, quantization: str, folder: Path) -> Path:
    """Writes a GGUF model with its quantised tensors in another format; returns the path of its `model.json`.

    Tensors in 32-bit floats and metadata stay. `ServelabError` for another model, or a format that cannot be read.
    """
    stored, path, tokenizer = load_model(model_json)
    if stored.format != "gguf":
        raise ServelabError(f"{model_json}: format is {stored.format}; only gguf can be re-quantised")
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{path.stem}.{quantization}.gguf"
    temporary = file.with_name(f"{file.name}.part")
    _write_quantized(path, temporary, quantization)
    temporary.replace(file)
    shutil.copyfile(tokenizer, folder / "tokenizer.json")
    return write_model(
        folder, file, "gguf", folder / "tokenizer.json", stored.source, f"{GGUF_QUANTIZER}: {quantization}"
    )


def _write_quantized(path: Path, file: Path, quantization: str) -> None:
    # Here: only who rewrites a model needs the library's writer.
    from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter, LlamaFileType, quants

    reader = GGUFReader(path)
    kind, file_type = GGMLQuantizationType[quantization.upper()], LlamaFileType[f"MOSTLY_{quantization.upper()}"]
    writer = GGUFWriter(file, reader.fields["general.architecture"].contents())
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name in ("general.architecture", "general.file_type"):
            continue
        element = field.types[-1] if field.types[0] == GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, field.contents(), field.types[0], element)
    writer.add_file_type(file_type)
    for tensor in reader.tensors:
        if tensor.tensor_type == GGMLQuantizationType.F32:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
            continue
        try:
            floats = quants.dequantize(tensor.data, tensor.tensor_type)
        except NotImplementedError as error:
            raise ServelabError(f"tensor {tensor.name}: {tensor.tensor_type.name} cannot be read: {error}") from None
        writer.add_tensor(tensor.name, quants.quantize(floats, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def convert_model(model_json: Path, folder: Path) -> Path:
    """Writes a GGUF model as safetensors with config, tokenizer and generation settings; returns its `model.json`.

    Weights are expanded to bfloat16. The tokenizer is built from the GGUF metadata, so that both engines see the same
    tokens. `ServelabError` if transformers cannot read the architecture.
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
