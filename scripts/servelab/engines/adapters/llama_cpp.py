"""llama.cpp, from the `xllamacpp` wheel: the library's server, started by Servelab's launcher."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from servelab.core.run_spec import ArgumentValue
from servelab.engines import llama_cpp_server
from servelab.engines.accelerator_boards import AcceleratorBoard
from servelab.engines.adapters import ENGINES, Engine
from servelab.engines.options import (
    A_FILE,
    ADDRESS,
    METRICS,
    MODEL,
    Checked,
    Owned,
    Parallel,
    Typed,
    argument,
    flag,
    switch,
)
from servelab.engines.server_to_start import EnvironmentFacts, Options, Serve

_LAUNCHER = Path(llama_cpp_server.__file__)
_AUTO_SLOTS = 4
"""Slots of llama-server without `--parallel`."""


def _context_length(value: int, options: Options) -> list[str]:
    """`--ctx-size` is the context of all slots together."""
    slots = options.get("max_num_seqs")
    return ["--ctx-size", str(value * (slots if isinstance(slots, int) else _AUTO_SLOTS))]


class LlamaCpp(Engine):
    """llama.cpp's server; its version is that of the `xllamacpp` package."""

    name = "llama.cpp"
    typed: ClassVar[Typed | None] = Typed(r"llama-server", ("-m", "--model", "-hf", "--hf-repo"), r"llama\.cpp")
    packages = ("xllamacpp",)
    model_formats = ("gguf",)
    option_flags: ClassVar = {
        "max_num_seqs": flag("--parallel"),
        "max_num_batched_tokens": flag("--batch-size"),
        "context_length": _context_length,
        "attention_backend": flag("--flash-attn"),
        "kv_cache_dtype": flag("--cache-type-k", "--cache-type-v"),
        "prefix_caching": switch("--cache-prompt", "--no-cache-prompt"),
        "speculative_decoding": flag("--spec-type"),
        "threads": flag("--threads"),
    }
    option_values: ClassVar = {"attention_backend": ("on", "off", "auto")}
    # Those of llama-server too, which the launcher does not have: displayed commands are for it.
    owned = (
        Owned(
            ADDRESS,
            flags=(
                *("--host", "--port", "--reuse-port", "--api-key", "--api-key-file", "--api-prefix", "--path"),
                *("--ssl-key-file", "--ssl-cert-file"),
            ),
            variables=("LLAMA_API_KEY",),
        ),
        Owned(
            MODEL,
            flags=(
                *("--model", "--model-url", "--hf-repo", "--hf-file", "--docker-repo", "--alias", "--models-dir"),
                *("--models-max", "--models-autoload"),
            ),
        ),
        Owned(A_FILE, flags=("--models-preset",)),
        Owned(METRICS, flags=("--metrics",)),
        Owned("it sets a flag; name the flag under `arguments` or `options`", variables=("LLAMA_ARG_*",)),
    )
    aliases = (
        *((long, short) for short, long in llama_cpp_server.SHORT.items()),
        *(("--alias", "-a"), ("--model-url", "-mu"), ("--hf-repo", "-hf", "-hfr"), ("--hf-file", "-hff")),
        *(("--docker-repo", "-dr"), ("--gpu-layers", "--n-gpu-layers"), ("--kv-offload", "-kvo", "-nkvo")),
        *(("--split-mode", "-sm"), ("--main-gpu", "-mg"), ("--verbosity", "-lv", "--log-verbosity")),
        *(("--cache-ram", "-cram"), ("--ctx-checkpoints", "-ctxcp"), ("--slot-prompt-similarity", "-sps")),
    )
    checked = (Checked("2026.10.11549", "parser", run=tuple(option_flags)),)
    reserves_context = True
    # The tokenizer and the configuration are in the GGUF file, and only the server reads them.
    facts = EnvironmentFacts(
        application=("xllamacpp:Server",), parse=(f"{_LAUNCHER}:parse",), base_flags=("--model", "model.gguf")
    )
    cache_reset = None  # `/slots/N?action=erase` empties slots, but not the cache of prompts in the host's memory
    metrics_path = "/metrics"
    metric_names: ClassVar = {
        "requests_running": ("llamacpp:requests_processing",),
        "requests_waiting": ("llamacpp:requests_deferred",),
        "prefix_cache_hit_tokens_total": ("llamacpp:prompt_tokens_cached_total",),
        "prefix_cache_query_tokens_total": ("llamacpp:prompt_tokens_cached_total", "llamacpp:prompt_tokens_total"),
        "prompt_tokens_total": ("llamacpp:prompt_tokens_cached_total", "llamacpp:prompt_tokens_total"),
        "generation_tokens_total": ("llamacpp:tokens_predicted_total",),
        "drafts_total": ("llamacpp:spec_decode_num_drafts_total",),
        "draft_tokens_total": ("llamacpp:spec_decode_num_draft_tokens_total",),
        "accepted_draft_tokens_total": ("llamacpp:spec_decode_num_accepted_tokens_total",),
    }
    answer_settings = (
        *Engine.answer_settings,
        *(
            "flash-attn",
            "cache-type-k*",
            "cache-type-v*",
            "model-draft",
            "draft*",
            "spec-*",
            "lora*",
            "control-vector*",
        ),
        *("rope-*", "yarn-*", "override-kv", "override-tensor", "cache-reuse", "context-shift", "GGML_CUDA_FORCE_*"),
    )
    lossless_settings = (*Engine.lossless_settings, "model-draft", "draft*", "spec-*")
    logprob_fields: ClassVar = {"completions": {"n_probs": 20}, "chat": {"logprobs": True, "top_logprobs": 20}}
    variable_prefixes = ("LLAMA_", "GGML_")
    log_prefix: ClassVar = re.compile(r"^\d+\.\d+\.\d+\.\d+ [A-Z] ")

    def defaults(
        self, version: str, board: AcceleratorBoard, options: Options, arguments: Mapping[str, ArgumentValue]
    ) -> dict[str, ArgumentValue]:
        """See `Engine.defaults`: common/arg.cpp."""
        return {"max_num_seqs": _AUTO_SLOTS, "max_num_batched_tokens": 2048, "prefix_caching": True}

    def command(self, serve: Serve) -> list[str]:
        base = [str(serve.python), str(_LAUNCHER), "--model", str(serve.model_path), "--alias", serve.model_name]
        address = ["--host", serve.host, "--port", str(serve.port)]
        # Only serves the page: the server counts without it too.
        return [*base, *self.flags(serve.options, serve.arguments), *address, "--metrics"]

    def own_flags(self) -> frozenset[str]:
        """See `Engine.own_flags`; the launcher has the same for every release of the library."""
        return frozenset(
            {*llama_cpp_server.VALUES, *llama_cpp_server.SWITCHES, *llama_cpp_server.SHORT, "--flash-attn"}
        )

    def keeps_prompts(self, options: Options, arguments: Mapping[str, ArgumentValue]) -> bool:
        """See `Engine.keeps_prompts`; prompts of idle slots are also kept in the host's memory, 8 GiB by default."""
        return super().keeps_prompts(options, arguments) or argument(arguments, "--cache-ram", "-cram") not in (0, "0")

    def setting(self, option: str, options: Options, arguments: Mapping[str, ArgumentValue]) -> ArgumentValue:
        """See `Engine.setting`; an argument `--ctx-size` counts for all slots together."""
        value = super().setting(option, options, arguments)
        if option == "context_length" and options.get(option) is None and isinstance(value, int):
            return value // int(_context_length(1, options)[1])
        return value

    def parallel(self, options: Options, arguments: Mapping[str, ArgumentValue], count: int) -> Parallel:
        """See `Engine.parallel`; it spreads the layers over all accelerators that it sees."""
        return Parallel(pipeline=count)

    def version_command(self, python: Path) -> list[str]:
        """See `Engine.version_command`; llama.cpp's own build number is not compiled into the wheel."""
        return [str(python), "-c", "import xllamacpp; print(xllamacpp.__version__)"]

    def display_base(self, model_id: str) -> list[str]:
        return ["llama-server", "--model", model_id]


ENGINES.register("llama.cpp", LlamaCpp())
