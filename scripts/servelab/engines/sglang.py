"""SGLang, through its own server."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from servelab.engines import ENGINES, Engine, Options, Serve, flag, signs, switch
from servelab.engines.evidence import Checked
from servelab.engines.layout import Parallel, argument
from servelab.errors import ConfigError
from servelab.spec import ArgumentValue

_PARALLEL = {
    "tensor_parallel_size": ("--tp-size", "--tp", "--tensor-parallel-size"),
    "pipeline_parallel_size": ("--pp-size", "--pp", "--pipeline-parallel-size"),
    "data_parallel_size": ("--dp-size", "--dp", "--data-parallel-size"),
}


def _expert_parallel(value: bool, options: Options) -> list[str]:
    """SGLang asks over how many accelerators experts are dealt out: all that share a layer, as vLLM does."""
    return ["--ep-size", str(options.get("tensor_parallel_size") or 1)] if value else []


class Sglang(Engine):
    """SGLang's server."""

    name = "sglang"
    packages = ("sglang",)
    model_formats = ("safetensors",)
    option_flags: ClassVar = {
        "tensor_parallel_size": flag("--tp-size"),
        "pipeline_parallel_size": flag("--pp-size"),
        "data_parallel_size": flag("--dp-size"),
        "expert_parallel": _expert_parallel,
        "attention_backend": flag("--attention-backend"),
        "kv_cache_dtype": flag("--kv-cache-dtype"),
        "memory_share": flag("--mem-fraction-static"),
        # On unless switched off; SGLang has no flag that says so.
        "prefix_caching": lambda value, options: [] if value else ["--disable-radix-cache"],
        # On with a size by the accelerator's memory, unless switched off.
        "chunked_prefill": lambda value, options: [] if value else ["--chunked-prefill-size", "-1"],
        "speculative_decoding": flag("--speculative-algorithm"),
        "speculative_tokens": flag("--speculative-num-draft-tokens"),
        "context_length": flag("--context-length"),
        "max_num_batched_tokens": flag("--max-prefill-tokens"),
        "max_num_seqs": flag("--max-running-requests"),
        "enforce_eager": switch("--disable-cuda-graph"),
    }
    parallel_flags: ClassVar[Mapping[str, tuple[str, ...]]] = _PARALLEL
    checked = (Checked("0.5.5.post1", "parser"), Checked("0.5.9", "parser"))
    metrics_path = "/metrics"
    metric_names: ClassVar = {
        "requests_running": ("sglang:num_running_reqs",),
        "requests_waiting": ("sglang:num_queue_reqs",),
        "kv_cache_usage_fraction": ("sglang:token_usage",),
        "prefix_cache_hit_tokens_total": ("sglang:cached_tokens_total",),
        "prefix_cache_query_tokens_total": ("sglang:prompt_tokens_total",),
        "prompt_tokens_total": ("sglang:prompt_tokens_total",),
        "generation_tokens_total": ("sglang:generation_tokens_total",),
    }
    request_body: ClassVar = {"ignore_eos": True}
    more_ports = 1
    # Set with setproctitle; in 0.5.9 and before nothing watches them (its issue 18421).
    worker_names: ClassVar = re.compile(r"sglang::(scheduler|detokenizer|data_parallel_controller)\w*")
    log_prefix: ClassVar = re.compile(r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[^\]]*\] ")
    failure_signs: ClassVar = [
        *signs("out_of_memory", r"(?<!avoid )out ?of ?memory", r"not enough memory\. please try", "bad_alloc"),
        *signs("unsupported_argument", r"error: (unrecognized|argument|ambiguous)"),
        *signs("missing_model", r"can't find config file", r"cannot find any model weights", r"repo id must be"),
        *signs("missing_model", r"is not a local folder", r"no such file or directory: .*(config|safetensors)"),
        *signs("crashed", r"(ValueError|RuntimeError|AssertionError|NotImplementedError|ImportError)\b"),
        *signs("crashed", r"received sigquit from a child process", r"sigquit received", r"scheduler is dead"),
        *signs("crashed", r"initialization failed\. warmup error"),
    ]

    def command(self, serve: Serve) -> list[str]:
        """See `Engine.command`; several accelerators need a word on how to share the work."""
        base = [str(serve.python), "-m", "sglang.launch_server", "--model-path", str(serve.model_path)]
        address = ["--served-model-name", serve.model_name, "--host", serve.host, "--port", str(serve.port)]
        flags = self.flags(serve.options, serve.arguments)
        named = [name for names in _PARALLEL.values() for name in names]
        if serve.count > 1 and not any(part.partition("=")[0] in named for part in flags):
            wrong = f"engine sglang would use 1 of {serve.count} accelerators"
            raise ConfigError(f"{wrong}; set {' or '.join(_PARALLEL)}")
        # Its own choice is a port near the one it serves on, which another server may just be about to take.
        nccl = [part for port in serve.more_ports for part in ("--nccl-port", str(port))]
        return [*base, *address, *nccl, "--enable-metrics", *flags]

    def environment(self, serve: Serve) -> dict[str, str]:
        """See `Engine.environment`."""
        return {**super().environment(serve), "HF_HUB_OFFLINE": "1"}

    def help_commands(self, python: Path) -> list[list[str]]:
        """See `Engine.help_commands`."""
        return [[str(python), "-m", "sglang.launch_server", "--help"]]

    def parallel(self, options: Options, arguments: Mapping[str, ArgumentValue], count: int) -> Parallel:
        """See `Engine.parallel`; with data-parallel attention the copies share the tensor-parallel accelerators."""
        sizes = super().parallel(options, arguments, count)
        return replace(sizes, data=1) if argument(arguments, "--enable-dp-attention") else sizes

    def version_command(self, python: Path) -> list[str]:
        """See `Engine.version_command`; importing the package would look for a GPU."""
        return [str(python), "-c", "from importlib.metadata import version; print(version('sglang'))"]

    def reset_caches(self, base_url: str) -> bool:
        """Empties the prefix cache; SGLang refuses with 400 while a request is running or waiting."""
        import httpx  # here, for it takes a tenth of a workflow's start

        answer = httpx.post(f"{base_url}/flush_cache", timeout=60, trust_env=False)
        return answer.status_code == httpx.codes.OK

    def display_base(self, model_id: str) -> list[str]:
        """See `Engine.display_base`."""
        return ["python3", "-m", "sglang.launch_server", "--model-path", model_id]


ENGINES.register("sglang", Sglang())
