"""Serves a GGUF model with llama.cpp's server and llama-server's flags.

The `xllamacpp` wheel ships the server but no command line. This file is run by its path with the Python of the engine's
environment and needs nothing else. A flag that is not given keeps llama-server's default: that of the library, except
`--parallel`, which is -1 in llama-server (auto: 4 slots over one KV cache) and 1 in the library.
"""

from __future__ import annotations

import argparse
import importlib
import json
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

# flag: (the parameter it sets, its type). Cache types and the like are enumerations of the library.
VALUES: dict[str, tuple[str, str]] = {
    "--alias": ("model_alias", "set"),
    "--batch-size": ("n_batch", "int"),
    "--cache-ram": ("cache_ram_mib", "int"),
    "--cache-reuse": ("n_cache_reuse", "int"),
    "--cache-type-k": ("cache_type_k", "ggml_type:GGML_TYPE_"),
    "--cache-type-v": ("cache_type_v", "ggml_type:GGML_TYPE_"),
    "--chat-template-kwargs": ("default_template_kwargs", "texts"),
    "--ctx-checkpoints": ("n_ctx_checkpoints", "int"),
    "--ctx-size": ("n_ctx", "int"),
    "--fit": ("fit_params", "switch"),
    "--gpu-layers": ("n_gpu_layers", "int"),
    "--host": ("hostnames", "list"),
    "--kv-unified-per-slot": ("kv_unified_per_slot", "int"),
    "--load-mode": ("load_mode", "llama_load_mode:LLAMA_LOAD_MODE_"),
    "--main-gpu": ("main_gpu", "int"),
    "--model": ("model.path", "str"),
    "--n-cpu-moe": ("tensor_buft_overrides", "layers"),
    "--numa": ("numa", "ggml_numa_strategy:GGML_NUMA_STRATEGY_"),
    "--override-tensor": ("tensor_buft_overrides", "str"),
    "--parallel": ("n_parallel", "int"),
    "--poll": ("cpuparams.poll", "int"),
    "--poll-batch": ("cpuparams_batch.poll", "int"),
    "--port": ("port", "int"),
    "--reasoning-format": ("reasoning_format", "common_reasoning_format:COMMON_REASONING_FORMAT_"),
    "--rope-freq-base": ("rope_freq_base", "float"),
    "--rope-freq-scale": ("rope_freq_scale", "float"),
    "--rope-scale": ("rope_freq_scale", "inverse"),
    "--rope-scaling": ("rope_scaling_type", "llama_rope_scaling_type:LLAMA_ROPE_SCALING_TYPE_"),
    "--slot-prompt-similarity": ("slot_prompt_similarity", "float"),
    "--spec-draft-n-max": ("speculative.draft.n_max", "int"),
    "--spec-draft-n-min": ("speculative.draft.n_min", "int"),
    "--spec-ngram-simple-size-m": ("speculative.ngram_simple.size_m", "int"),
    "--spec-ngram-simple-size-n": ("speculative.ngram_simple.size_n", "int"),
    "--spec-type": ("speculative.types", "list:common_speculative_type:COMMON_SPECULATIVE_TYPE_"),
    "--split-mode": ("split_mode", "llama_split_mode:LLAMA_SPLIT_MODE_"),
    "--tensor-split": ("tensor_split", "shares"),
    "--threads": ("cpuparams.n_threads", "int"),
    "--threads-batch": ("cpuparams_batch.n_threads", "int"),
    "--threads-http": ("n_threads_http", "int"),
    "--ubatch-size": ("n_ubatch", "int"),
    "--verbosity": ("verbosity", "int"),
    "--yarn-orig-ctx": ("yarn_orig_ctx", "int"),
}
OLDER: dict[str, tuple[str, str]] = {"--host": ("hostname", "str")}
"""The parameter in releases that lack the one above."""
SWITCHES: dict[str, tuple[str, bool]] = {
    "--cache-prompt": ("cache_prompt", True),
    "--no-cache-prompt": ("cache_prompt", False),
    "--cont-batching": ("cont_batching", True),
    "--no-cont-batching": ("cont_batching", False),
    "--context-shift": ("ctx_shift", True),
    "--no-context-shift": ("ctx_shift", False),
    "--cpu-strict": ("cpuparams.strict_cpu", True),
    "--jinja": ("use_jinja", True),
    "--no-jinja": ("use_jinja", False),
    "--kv-offload": ("no_kv_offload", False),
    "--no-kv-offload": ("no_kv_offload", True),
    "--kv-unified": ("kv_unified", True),
    "--no-kv-unified": ("kv_unified", False),
    "--metrics": ("endpoint_metrics", True),
    "--op-offload": ("no_op_offload", False),
    "--no-op-offload": ("no_op_offload", True),
    "--repack": ("no_extra_bufts", False),
    "--no-repack": ("no_extra_bufts", True),
    "--swa-full": ("swa_full", True),
    "--warmup": ("warmup", True),
    "--no-warmup": ("warmup", False),
}
_EXPERTS = r"\.ffn_(up|down|gate|gate_up)_(ch|)exps=CPU"
"""Experts in the host's memory, as common.h names their tensors."""
INSTEAD = {
    "--cpu-moe": ("--override-tensor", _EXPERTS),
    "--mlock": ("--load-mode", "mmap+mlock"),
    "--mmap": ("--load-mode", "mmap"),
    "--no-mmap": ("--load-mode", "none"),
}
"""Flag without a value, some of them of older releases → what it means."""
SHORT = {"-b": "--batch-size", "-ub": "--ubatch-size", "-c": "--ctx-size", "-np": "--parallel", "-m": "--model"}
SHORT |= {"-t": "--threads", "-tb": "--threads-batch", "-ctk": "--cache-type-k", "-ctv": "--cache-type-v"}
SHORT |= {"-fa": "--flash-attn", "-ngl": "--gpu-layers", "-kvu": "--kv-unified", "-cb": "--cont-batching"}
SHORT |= {"-ot": "--override-tensor", "-ncmoe": "--n-cpu-moe", "-cmoe": "--cpu-moe", "-ts": "--tensor-split"}
SHORT |= {"-lm": "--load-mode", "-fit": "--fit"}
KINDS: dict[str, Callable[[str], Any]] = {
    "float": float,
    "int": int,
    "inverse": lambda text: 1 / float(text),
    "layers": lambda text: ",".join(rf"blk\.{layer}{_EXPERTS}" for layer in range(int(text))),
    "shares": lambda text: ([float(each) for each in text.replace("/", ",").split(",")] + [0.0] * 128)[:128],
    "str": str,
    "switch": {"on": True, "off": False}.__getitem__,
    "texts": lambda text: {name: json.dumps(value) for name, value in json.loads(text).items()},
}
FLASH_ATTENTION = {"on": "ENABLED", "off": "DISABLED", "auto": "AUTO"}


def parse(arguments: Sequence[str]) -> list[tuple[str, str | bool]]:
    """Flags and values in the order of the command line; exits 2 on an unknown flag or a missing value."""
    parser = argparse.ArgumentParser(prog="llama_cpp_server", allow_abbrev=False, usage="%(prog)s --model PATH [flags]")
    given: list[tuple[str, str | bool]] = []

    class Keep(argparse.Action):
        def __call__(self, _parser: Any, _namespace: Any, value: Any, _name: str | None = None) -> None:
            given.append((self.option_strings[0], True if self.nargs == 0 else value))

    shorts: dict[str, list[str]] = {}
    for short, long in SHORT.items():
        shorts.setdefault(long, []).append(short)
    for name in VALUES:
        parser.add_argument(name, *shorts.get(name, []), action=Keep, required=name == "--model")
    parser.add_argument("--flash-attn", "-fa", action=Keep, choices=list(FLASH_ATTENTION))
    for name in (*SWITCHES, *INSTEAD):
        parser.add_argument(name, *shorts.get(name, []), action=Keep, nargs=0)
    parser.parse_args(arguments)
    return given


def convert(library: Any, kind: str, text: str) -> Any:
    """A flag's value in the library's type; `ValueError`, `KeyError` or `StopIteration` if it is not valid."""
    if kind.startswith("list:"):  # `ngram-simple` is COMMON_SPECULATIVE_TYPE_NGRAM_SIMPLE
        return [convert(library, kind.removeprefix("list:"), each.replace("-", "_")) for each in text.split(",")]
    if ":" in kind:
        enumeration, prefix = kind.split(":")
        text = text.replace("+", "_").replace("-", "_")  # `mmap+mlock`, `deepseek-legacy`
        members = getattr(library, enumeration)
        # llama-server's `q8_0` is GGML_TYPE_Q8_0, but `q4_K` keeps its capital: compare without case.
        return next(members[name] for name in members.__members__ if name.lower() == (prefix + text).lower())
    if kind in ("set", "list"):
        return {"set": set, "list": list}[kind]([text])
    return KINDS[kind](text)


def parameters(library: Any, given: list[tuple[str, str | bool]]) -> Any:
    """The library's parameters for these flags; exits 2 with a message on a value it does not accept."""
    chosen = library.CommonParams()
    chosen.n_parallel = -1
    both = {"--mlock", "--no-mmap"} <= dict(given).keys()  # as switches of their own they act together
    instead = INSTEAD | (dict.fromkeys(("--mlock", "--no-mmap"), ("--load-mode", "mlock")) if both else {})
    for name, value in (instead.get(name, (name, value)) for name, value in given):
        if isinstance(value, bool):
            path, setting = SWITCHES[name]
            _set(chosen, path, setting)
        elif name == "--flash-attn":
            chosen.flash_attn_type = library.llama_flash_attn_type[f"LLAMA_FLASH_ATTN_TYPE_{FLASH_ATTENTION[value]}"]
        else:
            path, kind = _place(chosen, name)
            try:
                converted = convert(library, kind, value)
                if path == "tensor_buft_overrides" and chosen.tensor_buft_overrides:  # assigning replaces them
                    converted = f"{chosen.tensor_buft_overrides},{converted}"
                _set(chosen, path, converted)
            except (AttributeError, ValueError, KeyError, StopIteration, ArithmeticError):
                print(f"error: invalid value for {name}: {value!r}", file=sys.stderr)
                sys.exit(2)
    return chosen


def _place(chosen: Any, name: str) -> tuple[str, str]:
    path, kind = VALUES[name]
    return (path, kind) if hasattr(chosen, path.split(".")[0]) else OLDER.get(name, (path, kind))


def _set(target: Any, path: str, value: Any) -> None:
    *parents, last = path.split(".")
    for parent in parents:
        target = getattr(target, parent)
    if not hasattr(target, last):
        print(f"error: argument for {path}: this release of the library has no such setting", file=sys.stderr)
        sys.exit(2)
    setattr(target, last, value)


def main() -> None:
    """Serves until a signal ends it."""
    given = parse(sys.argv[1:])
    model = Path(str(dict(given)["--model"]))
    if not model.is_file():
        print(f"error: model not found: {model}", file=sys.stderr)
        sys.exit(1)
    library = importlib.import_module("xllamacpp")  # only the engine's environment has it
    server = library.Server(parameters(library, given))
    print(f"listening on {server.listening_address}", file=sys.stderr, flush=True)
    signal.pause()


if __name__ == "__main__":
    main()
