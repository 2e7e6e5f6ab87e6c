"""Re-quantisation of a GGUF model: the same weights in another of llama.cpp's number formats.

The fastest format depends on the machine's kernels, so a study may try several. Fewer bits change the weights; Servelab
does not measure how that changes the model's answers.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter, LlamaFileType, quants

from servelab.assets.model_files import GGUF_QUANTIZER, load_model, write_model
from servelab.core.errors import ServelabError


def quantize_model(model_json: Path, quantization: str, folder: Path) -> Path:
    """Writes the model with all its quantised tensors in another format; returns the path of its `model.json`.

    Tensors in 32-bit floats (norms) and all metadata except the file type stay as they are. The file is complete or
    absent.

    Raises:
        ServelabError: the model is not GGUF, or its tensors are in a format that cannot be read.
    """
    stored, path, tokenizer = load_model(model_json)
    if stored.format != "gguf":
        raise ServelabError(f"{model_json}: format is {stored.format}; only gguf can be re-quantised")
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{path.stem}.{quantization}.gguf"
    temporary = file.with_name(f"{file.name}.part")
    _write(GGUFReader(path), temporary, quantization)
    temporary.replace(file)
    shutil.copyfile(tokenizer, folder / "tokenizer.json")
    return write_model(
        folder, file, "gguf", folder / "tokenizer.json", stored.source, f"{GGUF_QUANTIZER}: {quantization}"
    )


def _write(reader: GGUFReader, file: Path, quantization: str) -> None:
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
