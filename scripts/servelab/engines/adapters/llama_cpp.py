"""llama.cpp, from the `xllamacpp` wheel: the library's server, started by Servelab's launcher."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from servelab.core.run_spec import ArgumentValue
from servelab.engines import llama_cpp_server as launcher
from servelab.engines.accelerator_boards import AcceleratorBoard
from servelab.engines.adapters import ENGINES, Engine
from servelab.engines.options import Parallel, argument, flag, switch
from servelab.engines.server_to_start import EnvironmentFacts, Options, Serve

_LAUNCHER = Path(launcher.__file__)
_AUTO_SLOTS = 4
"""Slots of llama-server without `--parallel`."""


def _context_length(value: int, options: Options) -> list[str]:
    """`--ctx-size` is the context of all slots together."""
    slots = options.get("max_num_seqs")
    return ["--ctx-size", str(value * (slots if isinstance(slots, int) else _AUTO_SLOTS))]


class LlamaCpp(Engine):
    """llama.cpp's server; its version is that of the `xllamacpp` package."""

    name = "llama.cpp"
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
    # The tokenizer and the configuration are in the GGUF file, and only the server reads them.
    facts = EnvironmentFacts(
        application=("xllamacpp:Server",), parse=(f"{_LAUNCHER}:parse",), base_flags=("--model", "model.gguf")
    )

    def defaults(
        self, version: str, board: AcceleratorBoard, options: Options, arguments: Mapping[str, ArgumentValue]
    ) -> dict[str, ArgumentValue]:
        """See `Engine.defaults`: common/arg.cpp."""
        found = {
            "max_num_seqs": _AUTO_SLOTS,
            "max_num_batched_tokens": 2048,
            "ubatch-size": 512,
            "prefix_caching": True,
        }
        return {**found, "attention_backend": "auto", **({} if board.is_cpu else {"gpu-layers": "auto"})}

    def command(self, serve: Serve) -> list[str]:
        base = [str(serve.python), str(_LAUNCHER), "--model", str(serve.model_path), "--alias", serve.model_name]
        address = ["--host", serve.host, "--port", str(serve.port)]
        # Only serves the page: the server counts without it too.
        return [*base, *self.flags(serve.options, serve.arguments), *address, "--metrics"]

    def own_flags(self) -> frozenset[str]:
        """See `Engine.own_flags`; the launcher has the same for every release of the library."""
        return frozenset({*launcher.VALUES, *launcher.SWITCHES, *launcher.INSTEAD, *launcher.SHORT, "--flash-attn"})

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


ENGINES.register("llama.cpp", LlamaCpp())
