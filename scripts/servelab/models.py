"""Models: fetched from their source into `results/models/<model_key>/`, described by `model.json`."""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import Field, TypeAdapter, ValidationError
from tokenizers import Tokenizer

from servelab import gguf
from servelab.errors import ServelabError
from servelab.files import write_text
from servelab.sources import MODEL_SOURCES
from servelab.spec import ModelFormat, ModelSource, Strict


class StoredModel(Strict):
    """What `model.json` says; paths are relative to it, or absolute where the model lies elsewhere."""

    path: str = Field(description="File or folder to give the engine.")
    format: ModelFormat
    tokenizer: str = Field(description="The tokenizer.json that counts this model's tokens.")
    source: ModelSource
    conversion: str | None = Field(None, description="Converter and its version, where the source has another format.")


def fetch_model(source: ModelSource, folder: Path) -> Path:
    """Brings a model into a folder and writes `model.json` last; returns that.

    A GGUF file gets a tokenizer.json made from its metadata; a Hugging Face folder must have its own.

    Raises:
        ServelabError: the source does not give it, or it is neither GGUF nor safetensors with tokenizer.json.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = MODEL_SOURCES.get(source.kind)(source, folder)
    if path.is_dir():
        kind, tokenizer = _check_safetensors(path)
    else:
        kind, tokenizer = "gguf", folder / "tokenizer.json"
        write_text(tokenizer, gguf.build_tokenizer(gguf.Metadata(path)).to_str())
    return write_model(folder, path, kind, tokenizer, source)


FOLDER_FILES = ("config.json", "tokenizer.json", "*.safetensors")
"""What a Hugging Face folder must hold for an engine to serve it, as patterns."""


def _check_safetensors(folder: Path) -> tuple[ModelFormat, Path]:
    """A folder that an engine can serve."""
    for pattern in FOLDER_FILES:
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
    """Writes `model.json`; paths inside the folder become relative, so that the folder can be moved."""

    def shorten(file: Path) -> str:
        return os.path.relpath(file, folder) if file.is_relative_to(folder) else str(file)

    stored = StoredModel(
        path=shorten(path),
        format=model_format,
        tokenizer=shorten(tokenizer),
        source=source,
        conversion=conversion,
    )
    model_json = folder / "model.json"
    write_text(model_json, stored.model_dump_json(indent=2) + "\n")
    return model_json


def load_model(model_json: Path) -> tuple[StoredModel, Path, Path]:
    """What a `model.json` says, with the absolute paths of the model and of its tokenizer.json."""
    stored = StoredModel.model_validate_json(model_json.read_text(encoding="utf-8"))
    folder = model_json.parent.absolute()
    return stored, folder / stored.path, folder / stored.tokenizer


def load_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer, counting every token: without the truncation and padding its file may ask for."""
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises plain Exception
        raise ServelabError(f"{path}: not a readable tokenizer.json: {error}") from None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def parse_source(text: str) -> ModelSource:
    """A model source from JSON."""
    try:
        source: ModelSource = TypeAdapter(ModelSource).validate_json(text)
        return source
    except ValidationError as error:
        first = error.errors()[0]
        raise ServelabError(f"model source: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
