"""llama.cpp, from the `xllamacpp` wheel: the server of the library, started by a launcher of our own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from servelab.engines import ENGINES, Engine, Options, Serve, flag, signs, switch
from servelab.engines.evidence import Checked
from servelab.engines.layout import Parallel
from servelab.spec import ArgumentValue

_LAUNCHER = Path(__file__).with_name("llama_cpp_server.py")
_AUTO_SLOTS = 4
"""Slots of llama-server where `--parallel` is not given."""


def _context_length(value: int, options: Options) -> list[str]:
    """`--ctx-size` is the context of all slots together."""
    slots = options.get("max_num_seqs")
    return ["--ctx-size", str(value * (slots if isinstance(slots, int) else _AUTO_SLOTS))]


class LlamaCpp(Engine):
    """llama.cpp's server; a version is that of the `xllamacpp` package."""

    name = "llama.cpp"
    packages = ("xllamacpp",)
    model_formats = ("gguf",)
    option_flags: ClassVar = {
        "max_num_seqs": flag("--parallel"),
        "max_num_batched_tokens": flag("--batch-size"),
        "context_length": _context_length,
        "attention_backend": flag("--flash-attn"),
        "kv_cache_dtype": flag("--cache-type-k", "--cache-type-v"),
        "prefix_caching": switch("--cache-prompt", "--no-cache-prompt"),
        "threads": flag("--threads"),
    }
    option_values: ClassVar = {"attention_backend": ("on", "off", "auto")}
    checked = (Checked("2026.10.11549", "parser", run=tuple(option_flags)),)
    reserves_context = True
    metrics_path = "/metrics"
    metric_names: ClassVar = {
        "requests_running": ("llamacpp:requests_processing",),
        "requests_waiting": ("llamacpp:requests_deferred",),
        "prefix_cache_hit_tokens_total": ("llamacpp:prompt_tokens_cached_total",),
        "prefix_cache_query_tokens_total": ("llamacpp:prompt_tokens_cached_total", "llamacpp:prompt_tokens_total"),
        "prompt_tokens_total": ("llamacpp:prompt_tokens_cached_total", "llamacpp:prompt_tokens_total"),
        "generation_tokens_total": ("llamacpp:tokens_predicted_total",),
    }
    request_body: ClassVar = {"ignore_eos": True}
    log_prefix: ClassVar = re.compile(r"^\d+\.\d+\.\d+\.\d+ [A-Z] ")
    failure_signs: ClassVar = [
        *signs("out_of_memory", "insufficient memory", r"failed to allocate .*buffer", "out of memory", "bad_alloc"),
        *signs("unsupported_argument", r"error: (unrecognized|argument|ambiguous)", "invalid value for"),
        *signs("unsupported_argument", r"llama_init_from_model: .*(requires|not supported)"),
        *signs("missing_model", r"model not found", r"failed to load model", r"failed to open gguf"),
    ]

    def command(self, serve: Serve) -> list[str]:
        """See `Engine.command`."""
        base = [str(serve.python), str(_LAUNCHER), "--model", str(serve.model_path), "--alias", serve.model_name]
        address = ["--host", serve.host, "--port", str(serve.port)]
        # Only opens the page: the figures are counted without it too.
        return [*base, *address, "--metrics", *self.flags(serve.options, serve.arguments)]

    def help_commands(self, python: Path) -> list[list[str]]:
        """See `Engine.help_commands`; the launcher's, for the library has none."""
        return [[str(python), str(_LAUNCHER), "--help"]]

    def setting(self, option: str, options: Options, arguments: Mapping[str, ArgumentValue]) -> ArgumentValue:
        """See `Engine.setting`; an argument `--ctx-size` is of all slots together."""
        value = super().setting(option, options, arguments)
        if option == "context_length" and options.get(option) is None and isinstance(value, int):
            return value // int(_context_length(1, options)[1])
        return value

    def parallel(self, options: Options, arguments: Mapping[str, ArgumentValue], count: int) -> Parallel:
        """See `Engine.parallel`; it deals the layers out over all accelerators it sees."""
        return Parallel(pipeline=count)

    def version_command(self, python: Path) -> list[str]:
        """See `Engine.version_command`; llama.cpp's own build number is not compiled into the wheel."""
        return [str(python), "-c", "import xllamacpp; print(xllamacpp.__version__)"]

    def reset_caches(self, base_url: str) -> bool:
        """A restart takes about a second and leaves neither slots nor the host-memory prompt cache."""
        return False

    def display_base(self, model_id: str) -> list[str]:
        """See `Engine.display_base`."""
        return ["llama-server", "--model", model_id]


ENGINES.register("llama.cpp", LlamaCpp())
