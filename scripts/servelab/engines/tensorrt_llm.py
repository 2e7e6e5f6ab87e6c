"""TensorRT-LLM, through `trtllm-serve`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import ClassVar

from servelab.engines import ENGINES, Engine, Options, Serve, flag, signs, switch
from servelab.errors import ConfigError

_PARALLEL = {"tensor_parallel_size": "--tp_size", "pipeline_parallel_size": "--pp_size"}


def _expert_parallel(value: bool, options: Options) -> list[str]:
    """Over how many accelerators experts are dealt out: all that share a layer, as vLLM does."""
    return ["--ep_size", str(options.get("tensor_parallel_size") or 1)] if value else []


class TensorrtLlm(Engine):
    """`trtllm-serve` on its PyTorch backend, the default.

    Prefix caching, KV-cache format, attention kernels and speculative decoding are no flags of it: they stand in the
    YAML file of its argument `extra_llm_api_options`.
    """

    name = "tensorrt-llm"
    packages = ("tensorrt-llm", "tensorrt_llm")
    model_formats = ("safetensors",)
    option_flags: ClassVar = {
        "tensor_parallel_size": flag("--tp_size"),
        "pipeline_parallel_size": flag("--pp_size"),
        "expert_parallel": _expert_parallel,
        "context_length": flag("--max_seq_len"),
        "max_num_batched_tokens": flag("--max_num_tokens"),
        "max_num_seqs": flag("--max_batch_size"),
        "chunked_prefill": switch("--enable_chunked_prefill"),
    }
    request_body: ClassVar = {"ignore_eos": True}
    log_prefix: ClassVar = re.compile(r"^\[\d\d/\d\d/\d{4}-\d\d:\d\d:\d\d\] (\[TRT-LLM\] )?\[\w+\] ")
    failure_signs: ClassVar = [
        *signs("out_of_memory", r"out ?of ?memory", "bad_alloc"),
        *signs("unsupported_argument", r"error: (no such option|invalid value|option .* requires)"),
        *signs("missing_model", r"is not a local folder", r"repo id must be", r"can't load the configuration"),
        *signs("missing_model", r"no such file or directory: .*(config|safetensors)"),
        *signs("crashed", r"no gpu devices found on the node", r"executor worker returned error"),
        *signs("crashed", r"(ValueError|RuntimeError|AssertionError|NotImplementedError|ImportError): "),
    ]

    def command(self, serve: Serve) -> list[str]:
        """See `Engine.command`; several accelerators need a word on how to share the work.

        The module is what the program `trtllm-serve` runs. It answers to any model name.
        """
        flags = self.flags(serve.options, serve.arguments)
        if serve.count > 1 and not any(part.partition("=")[0] in _PARALLEL.values() for part in flags):
            wrong = f"engine tensorrt-llm would use 1 of {serve.count} accelerators"
            raise ConfigError(f"{wrong}; set {' or '.join(_PARALLEL)}")
        base = [str(serve.python), "-m", "tensorrt_llm.commands.serve", "serve", str(serve.model_path)]
        return [*base, "--host", serve.host, "--port", str(serve.port), *flags]

    def environment(self, serve: Serve) -> dict[str, str]:
        """See `Engine.environment`."""
        return {**super().environment(serve), "HF_HUB_OFFLINE": "1"}

    def version_command(self, python: Path) -> list[str]:
        """See `Engine.version_command`; importing the package would look for a GPU."""
        return [str(python), "-c", "from importlib.metadata import version; print(version('tensorrt_llm'))"]

    def reset_caches(self, base_url: str) -> bool:
        """It reuses blocks of earlier prompts and cannot be told to forget them: only a restart does."""
        return False

    def display_base(self, model_id: str) -> list[str]:
        """See `Engine.display_base`."""
        return ["trtllm-serve", model_id]


ENGINES.register("tensorrt-llm", TensorrtLlm())
