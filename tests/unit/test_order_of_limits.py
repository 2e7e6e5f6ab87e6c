"""The order in which runs wait to be measured: what could be fastest is first."""

import pytest

from servelab.study.order_of_limits import order_of_limit


def spec(source="Qwen/Qwen3-32B", quantization=None, count=1, **settings):
    return {
        "model": {"source": {"kind": "hub", "id": source}, "quantization": quantization},
        "hardware": {"count": count},
        "options": {},
        "arguments": {},
    } | settings


@pytest.mark.parametrize(
    ("faster", "slower"),
    [
        (spec("Qwen/Qwen3-32B-FP8"), spec()),
        (spec("Qwen/Qwen3-32B-AWQ"), spec("Qwen/Qwen3-32B-FP8")),
        (spec("x/Qwen3-30B-A3B-W8A8"), spec("Qwen/Qwen3-30B-A3B")),
        (spec("openai/gpt-oss-120b-MXFP4"), spec("openai/gpt-oss-120b")),
        (spec(arguments={"--quantization": "fp8"}), spec(arguments={"--max-num-seqs": 4})),
        (spec(options={"quantization": "awq"}), spec(options={"quantization": "fp8"})),
        (spec("a/SmolLM2-Q8_0.gguf", "q4_0"), spec("a/SmolLM2-Q4_0.gguf", "q8_0")),
        (spec(count=4), spec(count=2)),
        (spec("Qwen/Qwen3-32B-FP8", count=8), spec("Qwen/Qwen3-32B-AWQ")),
    ],
)
def test_fewer_bits_and_more_devices_are_first(faster, slower):
    assert order_of_limit(faster) > order_of_limit(slower)


@pytest.mark.parametrize("name", ["Qwen/Qwen3-32B", "Qwen/Qwen3-235B-A22B", "meta-llama/Llama-4-Scout-17B-16E", "a/f0"])
def test_a_name_without_a_format_is_no_format(name):
    assert order_of_limit(spec(name)) == 1 / 16


def test_what_the_server_is_told_besides_changes_nothing():
    changed = spec(options={"max_num_seqs": 4, "kv_cache_dtype": "fp8"}, arguments={"--seed": 4})
    assert order_of_limit(changed) == order_of_limit(spec())
