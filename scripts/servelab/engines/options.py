"""The shared vocabulary: options that mean the same on every engine that has them.

A study names an option once (`options: {max_num_seqs: 64}`); each engine says which of its own flags it is. What only
one engine has is no option: it is an argument, passed as given.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from servelab.errors import ConfigError
from servelab.registry import nearest
from servelab.spec import ArgumentValue


@dataclass(frozen=True)
class Option:
    """One option: the type of its value, and what it means."""

    kind: type[int] | type[str] | type[bool] | type[float]
    description: str


OPTIONS: dict[str, Option] = {
    "tensor_parallel_size": Option(int, "Accelerators each layer is split over."),
    "pipeline_parallel_size": Option(int, "Accelerators the layers are dealt out over."),
    "data_parallel_size": Option(int, "Copies of the model behind one address."),
    "expert_parallel": Option(bool, "Place whole experts on accelerators instead of splitting each."),
    "max_num_seqs": Option(int, "Most sequences generated at once."),
    "max_num_batched_tokens": Option(int, "Most tokens, prompts and outputs together, in one step."),
    "context_length": Option(int, "Longest sequence, prompt and output together, in tokens."),
    "attention_backend": Option(str, "Attention kernels, by the engine's own name for them."),
    "kv_cache_dtype": Option(str, "Number format of the KV cache, by the engine's own name for it."),
    "memory_share": Option(float, "Share of the accelerator's memory for weights and KV cache, 0 to 1."),
    "prefix_caching": Option(bool, "Reuse the KV cache of a prompt's beginning that was seen before."),
    "chunked_prefill": Option(bool, "Split long prompts over several steps, beside running outputs."),
    "speculative_decoding": Option(str, "How tokens are drafted ahead, by the engine's own name for it."),
    "speculative_tokens": Option(int, "Tokens drafted ahead of each step; with `speculative_decoding`."),
    "enforce_eager": Option(bool, "Run the model as it is, without compiling it or recording graphs."),
    "threads": Option(int, "CPU threads that compute."),
}
"""Every option by name."""


def check_option_names(options: Mapping[str, ArgumentValue]) -> None:
    """`ConfigError` on a name that is not in the vocabulary or a value of the wrong type; null is always allowed."""
    for name, value in options.items():
        if name not in OPTIONS:
            raise ConfigError(f"unknown option `{name}`{nearest(name, list(OPTIONS))}")
        kind = OPTIONS[name].kind
        if value is not None and type(value) is not kind:
            raise ConfigError(f"option `{name}` takes {_ARTICLES[kind]}, not {value!r}")
        if kind is float and isinstance(value, float) and not 0 < value <= 1:
            raise ConfigError(f"option `{name}` takes {_ARTICLES[kind]}, not {value}")
        if kind is int and isinstance(value, int) and value < 1:
            raise ConfigError(f"option `{name}` takes a number above 0, not {value}")


_ARTICLES: dict[type, str] = {
    int: "a whole number",
    str: "a text",
    bool: "true or false",
    float: "a number above 0 and at most 1",
}
