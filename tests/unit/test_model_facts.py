"""What model files say of size and shape, and the memory that follows from it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFWriter
from made_preflight import CONFIG, WEIGHTS_BYTES, make_model

from servelab.assets.known_models import known_entry, known_parameters
from servelab.assets.model_shape import ModelShape, shape_of_config
from servelab.assets.model_work import read_facts, stored_format
from servelab.core.yaml_file import read_yaml
from servelab.engines.accelerator_boards import GIB, board_of
from servelab.engines.adapters import ENGINES
from servelab.engines.memory import Division, division_of, kv_bytes_each, kv_room_bytes, kv_tokens, weights_bytes_each
from servelab.engines.options import Parallel

ONE = Parallel()


def kv_kib(config, tokens=1, parallel=ONE):
    return kv_bytes_each(shape_of_config(config), tokens, 2.0, parallel) / 1024


def test_folder_says_its_size_and_shape(tmp_path):
    facts = read_facts(make_model(tmp_path / "model"))
    assert facts.weights_bytes == WEIGHTS_BYTES
    assert (facts.shape.layers, facts.shape.kv_heads, facts.shape.max_positions) == (64, 8, 40960)


@pytest.mark.parametrize(
    ("config", "kib"),
    [
        (CONFIG, 256),  # 2 × 64 layers × 8 heads × 128 × 2 bytes
        ({"text_config": CONFIG}, 256),
        ({**CONFIG, "head_dim": None}, 160),  # 5120 / 64 heads = 80
        ({**CONFIG, "num_key_value_heads": None}, 2048),  # no groups: as many as attention heads
        ({**CONFIG, "layer_types": ["linear_attention", "full_attention"] * 32}, 128),
        # DeepSeek-V3: 61 layers × (512 + 64) × 2 bytes
        ({**CONFIG, "num_hidden_layers": 61, "kv_lora_rank": 512, "qk_rope_head_dim": 64}, 68.625),
    ],
)
def test_kv_cache_of_a_token(config, kib):
    assert kv_kib(config) == kib


def test_sliding_windows_bound_what_is_kept():
    config = {**CONFIG, "layer_types": ["sliding_attention", "full_attention"] * 32, "sliding_window": 100}
    assert kv_kib(config, 100) == 100 * 256
    assert kv_kib(config, 1000) == (1000 + 100) * 128
    assert kv_kib({**config, "use_sliding_window": False}, 1000) == 1000 * 256


DATA = Path(__file__).parents[1] / "data"
POSTED, BOARDS, KEPT = (read_yaml(DATA / f"{name}.yaml") for name in ("posted_memory", "boards", "layer_kinds"))


@pytest.mark.parametrize("posted", POSTED, ids=[each["of"] for each in POSTED])
def test_the_kv_cache_is_within_a_tenth_of_what_a_start_printed(posted):
    shape, board = shape_of_config(posted["config"]), board_of(posted["board"])
    if "version" in posted:
        engine, asked = ENGINES.get(posted.get("engine", "vllm")), (posted["version"], board)
        settings = engine.effective(*asked, {}, posted["arguments"])
        division = division_of(engine, *asked, settings, engine.parallel({}, posted["arguments"], 1))
    else:
        division = Division(Parallel(posted.get("tensor", 1)), has_switch=board.has_switch, **posted["division"])
    given = (shape, posted["stored_gib"] * GIB, posted.get("memory_gib", board.memory_gib) * GIB, division)
    room = kv_room_bytes(*given)
    found = {"room_gib": room / GIB, "states": division.state_limit(shape, room)}
    found["tokens"] = kv_tokens(*given, posted.get("context", 1))
    assert [found[what] == pytest.approx(posted[what], rel=0.1) for what in found if what in posted] == [True]


def test_what_a_start_takes_depends_on_release_and_board():
    """vLLM sorts all logits to draw tokens until 0.17, but in 0.11.0; from 0.21 on its share includes graphs."""
    engine, board, found = ENGINES.get("vllm"), board_of("NVIDIA H100 80GB HBM3"), {}
    for version in ("0.10.1", "0.11.0", "0.16.0", "0.17.1", "0.33.0"):
        division = division_of(engine, version, board, engine.effective(version, board, {}, {}), Parallel(2))
        found[version] = (division.sorts, division.has_graphs)
    assert division.has_switch and not board_of("NVIDIA GeForce RTX 5090").has_switch
    assert list(found.values()) == [(True, False), (False, False), (True, False), (False, False), (False, True)]


@pytest.mark.parametrize("kept", KEPT.values(), ids=KEPT)
def test_what_each_layer_keeps(kept):
    shape = shape_of_config({**CONFIG, **kept["config"]})
    assert [shape.full_layers, shape.window_layers, shape.window_tokens] == kept["layers_and_window"]
    assert shape.state_bytes / 1024 == pytest.approx(kept["state_kib"], rel=0.03)


def test_latent_attention_in_fp8_and_experts_of_copies():
    latent = shape_of_config({**CONFIG, "num_hidden_layers": 61, "kv_lora_rank": 512, "qk_rope_head_dim": 64})
    assert kv_bytes_each(latent, 1, 1.0, ONE) == 61 * 656
    # DeepSeek-V3: 641 GiB are not on each of eight copies, their experts are split over them
    spread = replace(latent, expert_share=0.97)
    assert weights_bytes_each(641.0, Parallel(data=8), spread) == pytest.approx(641 * (0.03 + 0.97 / 8))
    # its projections to compressed vectors are whole on each of eight
    assert weights_bytes_each(0, Parallel(8), latent) == 61 * 5120 * 576 * 2 * 7 / 8


def test_a_state_takes_whole_blocks_and_layers_without_a_window_may_have_their_own_heads():
    """As vLLM's log of Nemotron-3-Nano: two blocks of 4,176 tokens for 6 layers, and a state for 24 of 23."""
    nano = ModelShape(52, 32, 2, 256, None, 6, state_bytes=23 * 2_134_016, state_layers=23)
    assert kv_bytes_each(nano, 8192, 1.0, ONE) == (6 * 2 + 24) * 4176 * 512
    assert kv_bytes_each(nano, 8192, 1.0, ONE, states=2) == (6 * 2 + 24 * 2) * 4176 * 512
    gemma = ModelShape(30, 16, 8, 512, None, 5, 25, 1024, full_kv_heads=2, full_values_per_kv_head=1024)
    assert kv_bytes_each(gemma, 256_000, 1.0, ONE, 16384) == 5 * 256_000 * 2048 + 25 * 17407 * 4096


def test_split_over_accelerators():
    shape = shape_of_config(CONFIG)
    four = Parallel(tensor=4, pipeline=2, data=2)
    assert four.accelerators == 16
    assert weights_bytes_each(WEIGHTS_BYTES, four, shape) == WEIGHTS_BYTES / 8
    assert kv_bytes_each(shape, 1, 2.0, four) == 256 * 1024 / 8
    # 16 accelerators and 8 KV heads: each keeps a whole one
    assert kv_bytes_each(shape, 1, 2.0, Parallel(tensor=16)) == 256 * 1024 / 8


def test_gguf_says_its_size_and_shape(tmp_path):
    path = tmp_path / "m.gguf"
    writer = GGUFWriter(path, "llama")
    writer.add_context_length(2048)
    writer.add_block_count(30)
    writer.add_embedding_length(576)
    writer.add_head_count(9)
    writer.add_head_count_kv(3)
    writer.add_tensor("a", np.zeros((4, 8), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    facts = read_facts(path)
    assert (facts.weights_bytes, facts.parameters) == (path.stat().st_size, 32)
    assert kv_bytes_each(facts.shape, 1, 2.0, ONE) == 2 * 30 * 3 * 64 * 2
    assert facts.shape.max_positions == 2048


@pytest.mark.parametrize(("name", "gib"), BOARDS.items())
def test_memory_by_an_accelerators_name(name, gib):
    assert board_of(name).memory_gib == gib


@pytest.mark.parametrize(
    ("name", "number_format", "billion"),
    [
        ("casperhansen/llama-3.3-70b-instruct-awq", "int4", 70),
        ("acme/Meta-Llama-3.1-405B-Instruct-FP8-dynamic", "fp8", 405),
        ("acme/Some-30B-A3B-quantized.w8a8", "int8", 30),
        ("acme/Some-1.5B-GPTQ-Int8", "int8", 1.5),
        ("acme/Some-70B-NVFP4", "nvfp4", 70),
        ("acme/Other-17B-16E-Instruct", "bf16", None),
        ("acme/model-7body", "bf16", None),
    ],
)
def test_size_and_format_of_an_unknown_model_are_those_of_its_name(name, number_format, billion):
    assert known_entry(name) == ({}, number_format)
    assert known_parameters(name) == (billion and billion * 1e9)


@pytest.mark.parametrize(
    ("stored", "number_format"),
    [
        ({"quant_method": "awq", "bits": 4}, "int4"),
        ({"quant_method": "gptq", "bits": 8}, "int8"),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8"),
        ({"quant_method": "compressed-tensors", "weights": {"num_bits": 8, "type": "float"}}, "fp8"),
        ({"quant_method": "compressed-tensors", "weights": {"num_bits": 8, "type": "int"}}, "int8"),
        ({"quant_method": "compressed-tensors", "bits": 8, "kv_cache_scheme": {"type": "float"}}, "int8"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4"),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "fp8"),
        ({"quant_method": "mxfp4"}, "mxfp4"),
        (None, None),
    ],
)
def test_the_format_of_weights_is_that_of_their_configuration(stored, number_format):
    assert stored_format({"quantization_config": stored}) == number_format
