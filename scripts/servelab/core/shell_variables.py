"""Which variables of the shell reach a server or a load client: those that any program needs, and those named.

Any other (`LD_LIBRARY_PATH`, `OMP_NUM_THREADS`, `VLLM_…`) could change a measurement without changing the run's
identity. A study sets what it needs in `environment_variables`, with values that are part of the identity. A site names
in `pass_variables` what programs need on its machines; each run's manifest records the values.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from servelab.core.credentials import has_credential, is_secret
from servelab.core.errors import ConfigError

PASS_VARIABLES = "SERVELAB_PASS_VARIABLES"  # noqa: S105 (names of variables)
"""The variable with the names to pass, separated by commas; the workflow sets it to those of the site."""

_NEEDED = re.compile(r"PATH|HOME|USER|LOGNAME|LANG|LC_\w+|TZ|TMPDIR|XDG_CACHE_HOME|CUDA_CACHE_PATH|HF_HOME")
"""Where programs, caches and temporary files are, and the language of messages."""

_CHANGES_A_PROGRAM = re.compile(
    r"(LD|PYTHON|MALLOC|GLIBC|TCMALLOC|JEMALLOC|OMP|GOMP|KMP|MKL|OPENBLAS|BLIS|CUDA|CUBLAS|CUDNN|NVIDIA|NCCL|NVSHMEM|UCX"
    r"|GLOO|ASCEND|ACL|HCCL|ATB|NPU|HIP|ROCR|TORCH|PYTORCH|TORCHINDUCTOR|TRITON|XLA|RAY|HF|HUGGINGFACE|TRANSFORMERS"
    r"|TOKENIZERS|SAFETENSORS|FLASHINFER)_?[A-Z_0-9]*"
)
"""Families of variables by which users change loaders, libraries, drivers and frameworks."""


@dataclass(frozen=True)
class ShellVariables:
    """The shell's variables, as far as they concern a server."""

    needed: dict[str, str]
    """Those that any program needs."""
    passed: dict[str, str]
    """Those passed by name."""
    kept_out: list[str]
    """Names of those that could change a server, and do not reach it; sorted."""


def shell_variables(prefixes: Iterable[str] = (), shell: Mapping[str, str] | None = None) -> ShellVariables:
    """The variables of this process. `prefixes` begin the names of variables that the server reads itself.

    `ConfigError` if one that is to be passed is not set, or holds a credential.
    """
    shell = os.environ if shell is None else shell
    passed = {name: _passed(name, shell) for name in names_to_pass(shell)}
    needed = {name: value for name, value in shell.items() if name not in passed and _NEEDED.fullmatch(name)}
    own = tuple(prefixes)
    kept_out = sorted(
        name
        for name in shell.keys() - needed.keys() - passed.keys()
        if _CHANGES_A_PROGRAM.fullmatch(name) or (own and name.startswith(own))
    )
    return ShellVariables(needed, passed, kept_out)


def names_to_pass(shell: Mapping[str, str]) -> list[str]:
    """The names in `PASS_VARIABLES`, in order."""
    return [name for part in shell.get(PASS_VARIABLES, "").split(",") if (name := part.strip())]


def _passed(name: str, shell: Mapping[str, str]) -> str:
    if name not in shell:
        raise ConfigError(
            f"{PASS_VARIABLES}: {name} is not set here; set it, or take it out of the site's pass_variables"
        )
    if is_secret(name, shell[name]) or has_credential(shell[name]):
        raise ConfigError(
            f"{PASS_VARIABLES}: {name} holds a credential, and each run's manifest would show it; remove it"
        )
    return shell[name]
