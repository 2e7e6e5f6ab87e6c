"""Re-quantisation of a GGUF model: the same weights in another of llama.cpp's number formats.

Which format is fastest depends on the kernels a machine has, so a study may try several. Going to fewer bits changes
the weights: what a model says afterwards is not measured here.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from servelab.errors import ServelabError
from servelab.models import load_model, write_model
from servelab.spec import Quantization

if TYPE_CHECKING:  # each start of the workflow asks for the names below, and gguf takes long to import
    from gguf import GGUFReader

VERSION = "gguf-quantize 1"
"""The way of doing it, part of a run's identity: raise it when the result changes."""

FORMATS: tuple[str, ...] = get_args(Quantization)
"""Names of formats that `model.variants.<name>.quantization` takes."""


def quantize_model(model_json: Path, quantization: str, folder: Path) -> Path:
    """Writes the model with all its quantised tensors in another format; returns its `model.json`.

    Tensors in 32-bit floats (norms) stay as they are, and so does all metadata but the file's type. The file is
    complete or absent.

    Raises:
        ServelabError: the model is not GGUF, or its tensors are in a format that cannot be read.
    """
    from gguf import GGUFReader

    stored, path, tokenizer = load_model(model_json)
    if stored.format != "gguf":
        raise ServelabError(f"{model_json}: format is {stored.format}; only gguf is quantised anew")
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{path.stem}.{quantization}.gguf"
    temporary = file.with_name(f"{file.name}.part")
    _write(GGUFReader(path), temporary, quantization)
    temporary.replace(file)
    shutil.copyfile(tokenizer, folder / "tokenizer.json")
    return write_model(folder, file, "gguf", folder / "tokenizer.json", stored.source, f"{VERSION}: {quantization}")


def _write(reader: GGUFReader, file: Path, quantization: str) -> None:
    from gguf import GGMLQuantizationType, GGUFValueType, GGUFWriter, LlamaFileType, quants

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
