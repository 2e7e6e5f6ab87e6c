"""Weights in another number format: the same model to within the format's precision, served with the same tokens."""

import json
from typing import get_args

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter, quants

from servelab.assets.model_files import GGUF_QUANTIZER, quantize_model
from servelab.core.run_spec import Quantization

SHAPE = (64, 64)
STEP = {"q4_0": 1 / 7, "q8_0": 1 / 120, "bf16": 1 / 128, "f16": 1 / 1000}
"""A step of each format, of a block's largest value."""


@pytest.fixture
def model(tmp_path):
    """A GGUF file of two tensors, described as a fetched model is."""
    folder = tmp_path / "model"
    folder.mkdir()
    writer = GGUFWriter(folder / "m.gguf", "llama")
    writer.add_key_value("general.name", "tiny", GGUFValueType.STRING)
    writer.add_array("tokenizer.ggml.tokens", ["a", "b"])
    generator = np.random.default_rng(1)
    writer.add_tensor("blk.0.weight", generator.normal(size=SHAPE).astype(np.float16))
    writer.add_tensor("norm.weight", generator.normal(size=64).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    (folder / "tokenizer.json").write_text("{}")
    source = {"kind": "path", "path": "/m", "revision": "1"}
    content = {"path": "m.gguf", "format": "gguf", "tokenizer": "tokenizer.json", "source": source}
    (folder / "model.json").write_text(json.dumps(content))
    return folder / "model.json"


def tensors(path):
    return {tensor.name: tensor for tensor in GGUFReader(path).tensors}


@pytest.mark.parametrize("quantization", get_args(Quantization))
def test_same_weights_within_the_formats_precision(quantization, model, tmp_path):
    written = json.loads(quantize_model(model, quantization, tmp_path / "out").read_text())
    assert written["conversion"] == f"{GGUF_QUANTIZER}: {quantization}"
    before, after = tensors(model.parent / "m.gguf"), tensors(tmp_path / "out" / written["path"])
    assert after["blk.0.weight"].tensor_type == GGMLQuantizationType[quantization.upper()]
    floats = quants.dequantize(after["blk.0.weight"].data, after["blk.0.weight"].tensor_type)
    expected = before["blk.0.weight"].data.astype(np.float32)
    assert np.abs(floats - expected).max() <= STEP[quantization] * np.abs(expected).max()
    np.testing.assert_array_equal(after["norm.weight"].data, before["norm.weight"].data)
    fields = GGUFReader(tmp_path / "out" / written["path"]).fields
    assert fields["general.name"].contents() == "tiny"
    assert fields["tokenizer.ggml.tokens"].contents() == ["a", "b"]
