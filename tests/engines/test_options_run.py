"""Options that docs/reference/options.md says were run: a real server of the release serves with them."""

from __future__ import annotations

import httpx

VALUES = {
    "llama.cpp": {
        "max_num_seqs": 2,
        "max_num_batched_tokens": 256,
        "context_length": 512,
        "attention_backend": "on",
        "kv_cache_dtype": "q8_0",
        "prefix_caching": False,
        "speculative_decoding": "ngram-simple",
        "threads": 1,
    },
    "vllm": {
        "max_num_seqs": 2,
        "max_num_batched_tokens": 256,
        "context_length": 512,
        "memory_share": 0.2,
        "prefix_caching": False,
        "chunked_prefill": True,
        "speculative_decoding": "ngram",
        "speculative_tokens": 2,
        "enforce_eager": True,
        "threads": 1,
    },
}
ARGUMENTS = {"vllm": {"kv-cache-memory-bytes": 1 << 28}}
"""Besides, in place of what the fixture gives."""


def test_a_real_server_takes_all_of_them_at_once(installed, tmp_path):
    engine = installed.engine
    options = VALUES[engine.name]
    (checked,) = [checked for checked in engine.checked if checked.release == installed.environment.version]
    assert set(options) == set(checked.run)
    server = installed.server(tmp_path / "server.log", options=options, arguments=ARGUMENTS.get(engine.name, {}))
    try:
        server.start()
        body = {"model": "SmolLM2-135M-Instruct", "prompt": "Once upon", "max_tokens": 8, **engine.request_body}
        answer = httpx.post(f"{server.base_url}/v1/completions", json=body, timeout=120, trust_env=False).json()
    finally:
        server.stop()
    assert answer["usage"]["completion_tokens"] == 8
