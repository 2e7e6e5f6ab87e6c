"""The shared vocabulary: options that mean the same on every engine that has them, and what was checked per release.

A study names an option once (`options: {max_num_seqs: 64}`); each adapter maps it to the engine's own flag. A flag that
only one engine has is not an option but an argument, and is passed on as it is.

`tests/unit/test_engine_flags.py` compares every option with the flags of each release (`servelab/engines/flags`), and
`tests/engines/test_options_run.py` serves with the options that count as run. docs/support.md is generated from this.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from servelab.core.errors import ConfigError
from servelab.core.registry import nearest
from servelab.core.run_spec import ArgumentValue


@dataclass(frozen=True)
class Option:
    """One option: the type of its value, and its meaning."""

    kind: type[int] | type[str] | type[bool] | type[float]
    description: str


OPTIONS: dict[str, Option] = {
    "tensor_parallel_size": Option(int, "Number of accelerators that share each layer."),
    "pipeline_parallel_size": Option(int, "Number of pipeline stages, each with a part of the layers."),
    "data_parallel_size": Option(int, "Number of copies of the model behind one address."),
    "expert_parallel": Option(bool, "Place whole experts on accelerators instead of splitting each expert."),
    "max_num_seqs": Option(int, "Most sequences in a batch."),
    "max_num_batched_tokens": Option(int, "Most tokens in one step, prompts and outputs together."),
    "context_length": Option(int, "Longest sequence in tokens, prompt and output together."),
    "attention_backend": Option(str, "Attention kernels, by the engine's name for them."),
    "kv_cache_dtype": Option(str, "Number format of the KV cache, by the engine's name for it."),
    "memory_share": Option(float, "Share of the accelerator's memory for weights and KV cache, 0 to 1."),
    "prefix_caching": Option(bool, "Reuse the KV cache of prompts that begin with the same text."),
    "chunked_prefill": Option(bool, "Split the prefill of long prompts over several steps, next to running decodes."),
    "speculative_decoding": Option(str, "Method that drafts tokens ahead, by the engine's name for it."),
    "speculative_tokens": Option(int, "Tokens drafted ahead in each step; needs `speculative_decoding`."),
    "enforce_eager": Option(bool, "Run the model eagerly, without compilation or CUDA graphs."),
    "threads": Option(int, "CPU threads that compute."),
}
"""Every option by name."""


def check_option_names(options: Mapping[str, ArgumentValue]) -> None:
    """`ConfigError` for a name that is not in the vocabulary or a value of the wrong type; null is always valid."""
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


def argument(arguments: Mapping[str, ArgumentValue], *flags: str) -> ArgumentValue:
    """The value of the first of these flags that a study's arguments set, true without a value; None if none is set."""
    given = {_bare(name): True if value is None else value for name, value in arguments.items()}
    return next((given[_bare(flag)] for flag in flags if _bare(flag) in given), None)


def _bare(flag: str) -> str:
    """A flag without its leading dashes; studies may leave them out, and engines accept `_` for `-`."""
    return flag.lstrip("-").replace("_", "-")


HOW_CHECKED = {
    "run": "A test runs a real server of this release with it.",
    "parser": "Flag, type and choices are those of the argument parser in the released package.",
    "source": "Name, type and choices are those of the public source of that time; the package was not available.",
    "page": "Named on the vendor's page on this release; its range may come from a newer page (docs/engines.md).",
}


@dataclass(frozen=True)
class Checked:
    """One release that an engine's options were compared with."""

    release: str
    how: str
    """Key of `HOW_CHECKED`, for every option of the release."""
    run: tuple[str, ...] = ()
    """Options that a test also runs a real server with."""
    flags: str | None = None
    """The release whose list of flags counts, such as `vllm-0.9.1`; None for its own."""

    def of(self, option: str) -> str:
        """How an option was checked."""
        return "run" if option in self.run else self.how


CANN = (
    *("ASCEND_TOOLKIT_HOME", "ASCEND_HOME_PATH", "ASCEND_OPP_PATH", "ASCEND_AICPU_PATH", "ASCEND_CUSTOM_OPP_PATH"),
    *("TOOLCHAIN_HOME", "ATB_HOME_PATH"),
)
"""Of CANN's toolkit, and of NNAL, which has ATB."""

MINDIE = (
    *CANN,
    *("ATB_SPEED_HOME_PATH", "PYTORCH_INSTALL_PATH", "ASCENDIE_HOME", "MINDIE_TORCH_HOME", "MINDIE_LLM_HOME_PATH"),
    *("MIES_INSTALL_PATH", "HSECEASY_PATH"),
)
"""Of ATB-Models and of MindIE's parts, too."""

TENSORRT_LLM = ("OPAL_PREFIX", "PMIX_INSTALL_PREFIX", "CUDA_HOME")
"""NVIDIA's images have an Open MPI (HPC-X) that is not where it was built; without its prefix MPI cannot start."""


PARALLEL_OPTIONS = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")
"""Options that use several accelerators, in the order of `Parallel`."""


@dataclass(frozen=True)
class Parallel:
    """Sizes of the three ways to use several accelerators; they multiply."""

    tensor: int = 1
    """Accelerators that share each layer."""
    pipeline: int = 1
    """Groups of accelerators, each with a part of the layers."""
    data: int = 1
    """Copies of the model."""

    @property
    def accelerators(self) -> int:
        """Number of accelerators in total."""
        return self.tensor * self.pipeline * self.data

    def __str__(self) -> str:
        return f"tensor {self.tensor} × pipeline {self.pipeline} × data {self.data}"
