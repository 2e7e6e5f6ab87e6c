"""vLLM, through its OpenAI-compatible server."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Set
from pathlib import Path
from typing import ClassVar

from packaging.version import Version

from servelab.core.errors import ConfigError
from servelab.core.run_spec import ArgumentValue
from servelab.engines.accelerator_boards import AcceleratorBoard
from servelab.engines.adapters import ENGINES, Engine
from servelab.engines.options import (
    A_FILE,
    ADDRESS,
    MODEL,
    ONE_NODE,
    Checked,
    Owned,
    Typed,
    argument,
    drafted,
    flag,
    switch,
)
from servelab.engines.server_to_start import EnvironmentFacts, Kernel, Options, Serve, Span
from servelab.engines.start_rules import VLLM_RULES

BEGINS = r"vllm serve|python[\d.]* -m vllm\.entrypoints\.openai\.api_server"
_PARALLEL = {
    "tensor_parallel_size": ("-tp", "--tensor-parallel-size"),
    "pipeline_parallel_size": ("-pp", "--pipeline-parallel-size"),
    "data_parallel_size": ("-dp", "--data-parallel-size"),
}


def _threads(value: int) -> dict[str, str]:
    """Binds compute threads to the first CPUs that this process may use; by default vLLM reserves one CPU."""
    cpus = sorted(os.sched_getaffinity(0))[:value]
    if len(cpus) < value:
        raise ConfigError(f"option `threads` asks for {value} CPUs, this process may use {len(cpus)}")
    return {"VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, cpus))}


def _speculative(value: str, options: Options) -> list[str]:
    settings: dict[str, object] = {"method": value}
    if (tokens := options.get("speculative_tokens")) is not None:
        settings["num_speculative_tokens"] = tokens
    return ["--speculative-config", json.dumps(settings, separators=(",", ":"))]


def _node_flags(span: Span) -> list[str]:
    nodes = ["--nnodes", str(len(span.addresses)), "--node-rank", str(span.rank)]
    master = ["--master-addr", span.addresses[0], "--master-port", str(span.port)]
    return [*nodes, *master, *(["--headless"] if span.rank else [])]


_RUN = (
    *("max_num_seqs", "max_num_batched_tokens", "context_length", "memory_share", "prefix_caching"),
    *("chunked_prefill", "speculative_decoding", "speculative_tokens", "enforce_eager", "threads"),
)
"""Options that a CPU server can run with."""


class Vllm(Engine):
    """vLLM's API server; `vllm-cpu` is the build for machines without an accelerator."""

    name = "vllm"
    typed: ClassVar[Typed | None] = Typed(BEGINS, ("--model",), r"vllm(?!.*ascend)")
    packages: ClassVar[tuple[str, ...]] = ("vllm", "vllm-cpu")
    model_formats = ("safetensors",)
    option_flags: ClassVar = {
        "tensor_parallel_size": flag("-tp"),
        "pipeline_parallel_size": flag("-pp"),
        "data_parallel_size": flag("-dp"),
        "expert_parallel": switch("--enable-expert-parallel", "--no-enable-expert-parallel"),
        "attention_backend": flag("--attention-backend"),
        "kv_cache_dtype": flag("--kv-cache-dtype"),
        "memory_share": flag("--gpu-memory-utilization"),
        "prefix_caching": switch("--enable-prefix-caching", "--no-enable-prefix-caching"),
        "chunked_prefill": switch("--enable-chunked-prefill", "--no-enable-chunked-prefill"),
        "speculative_decoding": _speculative,
        "speculative_tokens": drafted([]),
        "context_length": flag("--max-model-len"),
        "max_num_batched_tokens": flag("--max-num-batched-tokens"),
        "max_num_seqs": flag("--max-num-seqs"),
        "enforce_eager": switch("--enforce-eager", "--no-enforce-eager"),
    }
    start_rules = VLLM_RULES
    graphs_inside_since = "0.32"
    parallel_flags: ClassVar[Mapping[str, tuple[str, ...]]] = _PARALLEL
    checked: ClassVar[tuple[Checked, ...]] = (
        Checked("0.11.0", "parser"),
        Checked("0.17.1", "parser"),
        Checked("0.32.0", "parser", run=_RUN),
        Checked("0.33.0", "parser"),
    )
    option_since: ClassVar = {"attention_backend": "0.13.0"}  # before, the variable VLLM_ATTENTION_BACKEND
    option_variables: ClassVar = {"threads": _threads}
    variables_of_options: ClassVar = {
        "VLLM_CPU_OMP_THREADS_BIND": "threads",
        "VLLM_ATTENTION_BACKEND": "attention_backend",
    }
    owned = (
        Owned(
            ADDRESS,
            flags=(
                *("--host", "--port", "--uds", "--root-path", "--api-key", "--ssl-keyfile", "--ssl-certfile"),
                *("--ssl-ca-certs", "--ssl-cert-reqs", "--ssl-ciphers", "--enable-ssl-refresh", "--grpc"),
                *("--grpc-port", "--tokens-only"),
            ),
            variables=("VLLM_HOST_IP", "VLLM_LOOPBACK_IP", "VLLM_PORT", "VLLM_API_KEY", "VLLM_RPC_BASE_PATH"),
        ),
        Owned(
            MODEL,
            flags=(
                *("--model", "--served-model-name", "--revision", "--code-revision", "--tokenizer"),
                *("--tokenizer-revision", "--hf-config-path", "--device"),
            ),
            variables=("VLLM_USE_MODELSCOPE", "VLLM_TARGET_DEVICE"),
        ),
        Owned(
            ONE_NODE,
            flags=(
                *("--headless", "--nnodes", "--node-rank", "--master-addr", "--master-port", "--data-parallel-address"),
                *("--data-parallel-rpc-port", "--data-parallel-rank", "--data-parallel-start-rank"),
                *("--data-parallel-size-local", "--data-parallel-external-lb", "--data-parallel-hybrid-lb"),
                *("--data-parallel-multi-port-external-lb", "--data-parallel-supervisor-port"),
            ),
            variables=("VLLM_DP_*",),
        ),
        Owned(A_FILE, flags=("--config",)),
    )
    aliases = (
        *(("--quantization", "-q"), ("--compilation-config", "-cc"), ("--optimization-level", "-O")),
        *(("--speculative-config", "-sc"), ("--attention-config", "-ac")),
        # from 0.33.0 on, `--disable-x` is one more name of `--no-enable-x`
        ("--enable-expert-parallel", "-ep", "--disable-expert-parallel"),
        ("--enable-prefix-caching", "--disable-prefix-caching"),
        ("--enable-chunked-prefill", "--disable-chunked-prefill"),
        *(("--decode-context-parallel-size", "-dcp"), ("--prefill-context-parallel-size", "-pcp")),
        *(("--api-server-count", "-asc"), ("--nnodes", "-n"), ("--node-rank", "-r"), ("--data-parallel-rank", "-dpn")),
        *(("--data-parallel-start-rank", "-dpr"), ("--data-parallel-size-local", "-dpl")),
        *(("--data-parallel-address", "-dpa"), ("--data-parallel-rpc-port", "-dpp")),
        *(("--data-parallel-backend", "-dpb"), ("--data-parallel-hybrid-lb", "-dph")),
        *(("--data-parallel-external-lb", "-dpe"), ("--data-parallel-multi-port-external-lb", "-dpm")),
        ("--diffusion-config", "-dc"),
    )
    abbreviates = True
    reads_memory: ClassVar[bool] = True
    """Whether its platform tells vLLM the memory of a device, which chooses the defaults of batches."""
    nodes_since: ClassVar[str | None] = "0.17.1"  # the oldest that was looked at; before 0.12 it takes Ray
    facts = EnvironmentFacts(
        application=("vllm.entrypoints.openai.api_server",),
        fill_parser=(
            "vllm.entrypoints.openai.cli_args:make_arg_parser",
            "vllm.entrypoints.launchers.cli_args:make_arg_parser",
            "vllm.entrypoints.common.cli_args:make_arg_parser",  # 0.33.0
        ),
        parser_class=("vllm.utils.argparse_utils:FlexibleArgumentParser", "vllm.utils:FlexibleArgumentParser"),
        tokenizer=("vllm.tokenizers.registry:get_tokenizer", "vllm.transformers_utils.tokenizer:get_tokenizer"),
        configuration=("vllm.transformers_utils.config:get_config",),
        reads_keys_before={"rope_theta": "0.12.0"},  # from then on it reads `rope_parameters`
        stand_in=("vllm.platforms", "_current_platform", "vllm.platforms.cpu:CpuPlatform"),
        kernels=(
            Kernel(
                "flashinfer-python",
                ("flashinfer",),
                {"attention_backend": "FLASHINFER.*", "attention-backend": "FLASHINFER.*"}
                | {"VLLM_ATTENTION_BACKEND": "FLASHINFER.*"},
                is_built=True,
                prebuilt=("flashinfer_jit_cache",),
            ),
            Kernel(  # gated delta networks: FlashInfer's prefill on H100
                "flashinfer-python",
                ("flashinfer",),
                models={"model_type": "qwen3_next|qwen3_5.*"},
                unless={"gdn-prefill-backend": "triton"},
                is_built=True,
                prebuilt=("flashinfer_jit_cache",),
                since="0.17.0",
            ),
            Kernel("xformers", ("xformers",), {"attention_backend": "XFORMERS", "VLLM_ATTENTION_BACKEND": "XFORMERS"}),
            Kernel("deep_gemm", ("deep_gemm",), {"VLLM_USE_DEEP_GEMM": "1|true"}, is_built=True),
            Kernel("deep_ep", ("deep_ep",), {"all2all-backend": "deepep.*", "VLLM_ALL2ALL_BACKEND": "deepep.*"}),
            Kernel("pplx-kernels", ("pplx_kernels",), {"all2all-backend": "pplx", "VLLM_ALL2ALL_BACKEND": "pplx"}),
        ),
    )
    # vLLM 0.33 stopped by SIGTERM in the first 0.1 s of a request ends its workers and then waits for that request.
    worker_names: ClassVar = re.compile(r"VLLM::(EngineCore|Worker)\w*")
    cache_reset = "/reset_prefix_cache"
    metrics_path = "/metrics"
    metric_names: ClassVar = {
        "requests_running": ("vllm:num_requests_running",),
        "requests_waiting": ("vllm:num_requests_waiting",),
        "kv_cache_usage_fraction": ("vllm:kv_cache_usage_perc",),
        "prefix_cache_hit_tokens_total": ("vllm:prefix_cache_hits_total",),
        "prefix_cache_query_tokens_total": ("vllm:prefix_cache_queries_total",),
        "preemptions_total": ("vllm:num_preemptions_total",),
        "prompt_tokens_total": ("vllm:prompt_tokens_total",),
        "generation_tokens_total": ("vllm:generation_tokens_total",),
        "drafts_total": ("vllm:spec_decode_num_drafts_total",),
        "draft_tokens_total": ("vllm:spec_decode_num_draft_tokens_total",),
        "accepted_draft_tokens_total": ("vllm:spec_decode_num_accepted_tokens_total",),
        "process_start_unix_s": ("process_start_time_seconds",),
    }
    answer_settings = (
        *Engine.answer_settings,
        *("quantization*", "dtype", "kv-cache-dtype*", "calculate-kv-scales", "attention-*", "speculative-*"),
        *("compilation-config*", "hf-overrides*", "rope-*", "override-*", "enable-lora", "moe-backend*"),
        *("VLLM_ATTENTION_*", "VLLM_FLASH_*", "VLLM_USE_*", "VLLM_KV_*", "VLLM_*_GEMM*", "VLLM_*_MOE*"),
    )
    # 20 is the most that it prints by default
    logprob_fields: ClassVar = {
        "completions": {"logprobs": 20, "return_tokens_as_token_ids": True},
        "chat": {"logprobs": True, "top_logprobs": 20, "return_tokens_as_token_ids": True},
    }
    # Process (in colour up to 0.11), level, time, source line.
    variable_prefixes = ("VLLM_",)
    log_prefix: ClassVar = re.compile(
        r"^((\x1b\[[\d;]*m)?\([^()]+ pid=\d+\)(\x1b\[[\d;]*m)? )?([A-Z]+ [\d-]+ [\d:]+ \[\S+\] ?)?"
    )

    def command(self, serve: Serve) -> list[str]:
        base = [str(serve.python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(serve.model_path)]
        address = ["--served-model-name", serve.model_name, "--host", serve.host, "--port", str(serve.port)]
        flags = self.flags(serve.options, serve.arguments)
        self.check_all_used(serve, flags)
        if serve.span is None:
            return [*base, *flags, *address]
        if self.parallel(serve.options, serve.arguments, serve.count).data > 1:
            raise ConfigError(f"engine {self.name} over several nodes takes no `data_parallel_size` here")
        # of its programs only this one has parts that serve no requests
        program = [str(serve.python), "-m", "vllm.entrypoints.cli.main", "serve", str(serve.model_path)]
        return [*program, *flags, *address, *_node_flags(serve.span)]

    def display_nodes(self, command: list[str], nodes: int, count: int) -> list[str]:
        """See `Engine.display_nodes`; `--headless` is added where RANK is not 0."""
        return [*command, "--nnodes", str(nodes), "--node-rank", "RANK", "--master-addr", "ADDRESS"]

    def node_environment(self, span: Span) -> dict[str, str]:
        """See `Engine.node_environment`; Gloo would take the address of the host's name, often a loopback one."""
        return {"VLLM_HOST_IP": span.own, "GLOO_SOCKET_IFNAME": span.interface}

    def environment(self, serve: Serve) -> dict[str, str]:
        return {
            **super().environment(serve),
            "VLLM_SERVER_DEV_MODE": "1",  # enables /reset_prefix_cache
            "VLLM_NO_USAGE_STATS": "1",
            "DO_NOT_TRACK": "1",
            "HF_HUB_OFFLINE": "1",
        }

    def defaults(
        self, version: str, board: AcceleratorBoard, options: Options, arguments: Mapping[str, ArgumentValue]
    ) -> dict[str, ArgumentValue]:
        """See `Engine.defaults`: get_batch_defaults of vllm/engine/arg_utils.py, 0.11.0 to 0.33.0."""
        release, memory_gib = Version(version), board.memory_gib or 0.0
        is_large = memory_gib >= 70 and "a100" not in board.name.lower() and self.reads_memory
        tokens, sequences = (8192, 1024) if is_large else (2048, 256)
        if is_large and memory_gib >= 160 and release >= Version("0.32"):
            tokens = 16384
        if board.is_cpu:
            sizes = self.parallel(options, arguments, 1)
            tokens, sequences = (each * sizes.tensor * sizes.pipeline for each in (2048, 128))
        if argument(arguments, "performance-mode") == "throughput":
            tokens, sequences = 2 * tokens, 2 * sequences
        given, limit, context = (
            value if isinstance(value := self.setting(name, options, arguments), int) else None
            for name in ("max_num_batched_tokens", "max_num_seqs", "context_length")
        )
        if context and options.get("chunked_prefill") is False:
            tokens = max(tokens, context)
        tokens = min(tokens, (limit or sequences) * (context or tokens))
        return {
            "max_num_batched_tokens": tokens,
            "max_num_seqs": min(sequences, given or tokens),
            "memory_share": 0.92 if release >= Version("0.32") else 0.9,
            "kv_cache_dtype": "auto",
            "prefix_caching": True,
            "chunked_prefill": True,
            "enforce_eager": False,
            "expert_parallel": False,
            "async-scheduling": release >= Version("0.17"),
            "performance-mode": "balanced",
            "stream-interval": 1,
            **dict.fromkeys(_PARALLEL, 1),
        }

    def resolved(self, settings: dict[str, ArgumentValue]) -> dict[str, ArgumentValue]:
        """See `Engine.resolved`; without graphs their sizes do nothing."""
        if settings.get("enforce_eager"):
            settings.pop("max-cudagraph-capture-size", None)
        return super().resolved(settings)

    def knows(self, given: str, flags: Set[str]) -> bool:
        """See `Engine.knows`; vLLM also accepts `_` for `-`, a key of a JSON value after a dot, and `-O<level>`."""
        name = given.partition(".")[0]
        if name.startswith("-O"):
            return not flags.isdisjoint({"-O", "--optimization-level"})
        return name in flags or name.replace("_", "-") in flags

    def version_command(self, python: Path) -> list[str]:
        return [str(python), "-c", "from vllm import __version__; print(__version__)"]

    def has_reset(self, answer: bytes) -> bool:
        """See `Engine.has_reset`; new releases say it in JSON, old releases send an empty answer."""
        if not answer:
            return True
        try:
            said = json.loads(answer)
        except (ValueError, RecursionError):
            return False
        return isinstance(said, dict) and said.get("success") is True

    def display_base(self, model_id: str) -> list[str]:
        return ["vllm", "serve", model_id]


ENGINES.register("vllm", Vllm())
