"""SGLang, through its server."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from servelab.core.errors import ConfigError
from servelab.core.run_spec import ArgumentValue
from servelab.engines.accelerator_boards import AcceleratorBoard
from servelab.engines.adapters import ENGINES, Engine
from servelab.engines.options import (
    A_FILE,
    ADDRESS,
    METRICS,
    MODEL,
    ONE_NODE,
    Checked,
    Owned,
    Parallel,
    Typed,
    argument,
    experts,
    flag,
    switch,
)
from servelab.engines.server_to_start import EnvironmentFacts, Kernel, Options, Serve, Span

_PARALLEL = {
    "tensor_parallel_size": ("--tp-size", "--tp", "--tensor-parallel-size"),
    "pipeline_parallel_size": ("--pp-size", "--pp", "--pipeline-parallel-size"),
    "data_parallel_size": ("--dp-size", "--dp", "--data-parallel-size"),
}

_CHUNKS = ((20, 2048), (60, 4096), (160, 8192))
"""GiB of a board, exclusive → tokens of a chunk of prefill (0.5.23)."""


def _node_flags(span: Span) -> list[str]:
    meet = f"{span.addresses[0]}:{span.port}"
    return ["--nnodes", str(len(span.addresses)), "--node-rank", str(span.rank), "--dist-init-addr", meet]


class Sglang(Engine):
    """SGLang's server."""

    name = "sglang"
    typed: ClassVar[Typed | None] = Typed(
        r"sglang serve|python[\d.]* -m sglang\.launch_server", ("--model-path", "--model"), "sglang"
    )
    packages = ("sglang",)
    model_formats = ("safetensors",)
    option_flags: ClassVar = {
        "tensor_parallel_size": flag("--tp-size"),
        "pipeline_parallel_size": flag("--pp-size"),
        "data_parallel_size": flag("--dp-size"),
        "expert_parallel": experts("--ep-size"),
        "attention_backend": flag("--attention-backend"),
        "kv_cache_dtype": flag("--kv-cache-dtype"),
        "memory_share": flag("--mem-fraction-static"),
        # On by default; SGLang has no flag to switch it on.
        "prefix_caching": lambda value, options: [] if value else ["--disable-radix-cache"],
        # On by default, with a chunk size that depends on the accelerator's memory.
        "chunked_prefill": lambda value, options: [] if value else ["--chunked-prefill-size", "-1"],
        "speculative_decoding": flag("--speculative-algorithm"),
        "speculative_tokens": flag("--speculative-num-draft-tokens"),
        "context_length": flag("--context-length"),
        "max_num_batched_tokens": flag("--max-prefill-tokens"),
        "max_num_seqs": flag("--max-running-requests"),
        "enforce_eager": switch("--disable-cuda-graph"),
    }
    parallel_flags: ClassVar[Mapping[str, tuple[str, ...]]] = _PARALLEL
    owned = (
        Owned(
            ADDRESS,
            flags=(
                *("--host", "--port", "--api-key", "--admin-api-key", "--fastapi-root-path", "--grpc-mode"),
                *("--nccl-port", "--ssl-keyfile", "--ssl-certfile", "--ssl-ca-certs", "--ssl-keyfile-password"),
                *("--enable-ssl-refresh", "--grpc-port", "--grpc-http-sidecar-port", "--smg-grpc-mode"),
                *("--smg-http-sidecar-port", "--sidecar", "--sidecar-args"),
            ),
            variables=("SGLANG_HOST_IP", "SGLANG_LOCAL_IP_NIC", "SGLANG_PORT", "SGLANG_API_KEY"),
        ),
        Owned(
            MODEL,
            flags=("--model-path", "--served-model-name", "--tokenizer-path", "--revision", "--device"),
            variables=("SGLANG_USE_MODELSCOPE",),
        ),
        Owned(
            ONE_NODE,
            flags=(
                *("--nnodes", "--node-rank", "--dist-init-addr", "--disaggregation-mode", "--encoder-only"),
                *("--language-only", "--base-gpu-id", "--gpu-id-step", "--use-ray"),
            ),
            variables=("SGLANG_DISTRIBUTED_INIT_METHOD_OVERRIDE",),
        ),
        Owned(METRICS, flags=("--enable-metrics",)),
        Owned(A_FILE, flags=("--config", "--decrypted-config-file")),
    )
    aliases = (
        *(("--model-path", "--model"), ("--ep-size", "--ep", "--expert-parallel-size")),
        *(("--dist-init-addr", "--nccl-init-addr"), ("--moe-dp-size", "--moe-data-parallel-size")),
        *(("--attn-cp-size", "--attention-context-parallel-size"), ("--dcp-size", "--decode-context-parallel-size")),
        *(("--attn-dp-size", "--attention-data-parallel-size"),),
        *(("--speculative-draft-model-path", "--speculative-draft-model"),),
    )
    abbreviates = True
    nodes_since = "0.5.5.post1"  # the oldest whose flags for it were looked at
    facts = EnvironmentFacts(
        application=("sglang.srt.entrypoints.http_server",),
        fill_parser=("sglang.srt.server_args:ServerArgs.add_cli_args",),
        base_flags=("--model-path", "model"),
        tokenizer=("sglang.srt.utils.hf_transformers_utils:get_tokenizer",),
        configuration=("sglang.srt.utils.hf_transformers_utils:get_config",),
        reads_keys_before={"rope_theta": "0.5.10"},
        kernels=(
            Kernel("sgl-kernel", ("sgl_kernel",)),
            Kernel(  # its first matrix product on H100 ends with an AssertionError where there is no CUDA toolkit
                "DeepGEMM of sgl-kernel",
                ("deep_gemm",),
                models={"quant_method": "fp8"},
                unless={"SGLANG_ENABLE_JIT_DEEPGEMM": "0|false"},
                is_built=True,
            ),
            Kernel(
                "flashinfer-python",
                ("flashinfer",),
                {"attention_backend": ".*flashinfer.*", "attention-backend": ".*flashinfer.*"},
                is_built=True,
                prebuilt=("flashinfer_jit_cache",),
            ),
        ),
    )
    checked = (Checked("0.5.5.post1", "parser"), Checked("0.5.9", "parser"), Checked("0.5.23", "parser"))
    cache_reset = "/flush_cache"  # refused with 400 while a request is running or waiting
    metrics_path = "/metrics"
    metric_names: ClassVar = {
        "requests_running": ("sglang:num_running_reqs",),
        "requests_waiting": ("sglang:num_queue_reqs",),
        "kv_cache_usage_fraction": ("sglang:token_usage",),
        "prefix_cache_hit_tokens_total": ("sglang:cached_tokens_total",),
        "prefix_cache_query_tokens_total": ("sglang:prompt_tokens_total",),
        "prompt_tokens_total": ("sglang:prompt_tokens_total",),
        "generation_tokens_total": ("sglang:generation_tokens_total",),
        "draft_accepted_fraction": ("sglang:spec_accept_rate",),
        "accepted_length_tokens": ("sglang:spec_accept_length",),
    }
    answer_settings = (
        *Engine.answer_settings,
        *("quantization*", "dtype", "kv-cache-dtype", "*attention-backend", "speculative-*", "torchao-config"),
        *("*gemm*-backend", "moe-*", "sampling-backend", "enable-torch-compile", "lora-*", "json-model-override-args"),
        *("SGLANG_*GEMM*", "SGLANG_*FUSED*", "SGLANG_*ATTN*"),
    )
    more_ports = 1
    works_inside_share = False
    # Set with setproctitle; up to 0.5.9 nothing watches them (SGLang's issue 18421).
    worker_names: ClassVar = re.compile(r"sglang::(scheduler|detokenizer|data_parallel_controller)\w*")
    variable_prefixes = ("SGLANG_", "SGL_")
    log_prefix: ClassVar = re.compile(r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[^\]]*\] ")

    def defaults(
        self, version: str, board: AcceleratorBoard, options: Options, arguments: Mapping[str, ArgumentValue]
    ) -> dict[str, ArgumentValue]:
        """See `Engine.defaults`; the memory share is a formula of the model, the limit of sequences one of the pool."""
        memory_gib = board.memory_gib or 80.0
        chunk = next((size for most, size in _CHUNKS if memory_gib < most), 16384)
        return {
            "max_num_batched_tokens": 16384,
            "chunked-prefill-size": chunk,
            "kv_cache_dtype": "auto",
            "prefix_caching": True,
            "chunked_prefill": True,
            "enforce_eager": False,
            "expert_parallel": False,
            "attn-dp-size": 1,
            "stream-interval": 1,
            **dict.fromkeys(_PARALLEL, 1),
        }

    def resolved(self, settings: dict[str, ArgumentValue]) -> dict[str, ArgumentValue]:
        """See `Engine.resolved`; attention DP over one copy is none, by its old flag too."""
        if settings.pop("disable-radix-cache", False):
            settings["prefix_caching"] = False
        if settings.pop("enable-dp-attention", False) and settings["attn-dp-size"] == 1:
            settings["attn-dp-size"] = settings["data_parallel_size"]
        return super().resolved(settings)

    def command(self, serve: Serve) -> list[str]:
        base = [str(serve.python), "-m", "sglang.launch_server", "--model-path", str(serve.model_path)]
        address = ["--served-model-name", serve.model_name, "--host", serve.host, "--port", str(serve.port)]
        flags = self.flags(serve.options, serve.arguments)
        self.check_all_used(serve, flags)
        # By default it takes a port near the one it serves on, which another server may be about to use.
        nccl = [part for port in serve.more_ports for part in ("--nccl-port", str(port))]
        if serve.span is None:
            return [*base, *flags, *address, *nccl, "--enable-metrics"]
        dp_attention = argument(serve.arguments, "--enable-dp-attention")
        if not dp_attention and self.parallel(serve.options, serve.arguments, serve.count).data > 1:
            wrong = "engine sglang over several nodes takes `data_parallel_size` only with its argument"
            raise ConfigError(f"{wrong} `enable-dp-attention`")
        return [*base, *flags, *address, *_node_flags(serve.span), "--enable-metrics"]

    def display_nodes(self, command: list[str], nodes: int, count: int) -> list[str]:
        return [*command, "--nnodes", str(nodes), "--node-rank", "RANK", "--dist-init-addr", "ADDRESS:PORT"]

    def node_environment(self, span: Span) -> dict[str, str]:
        """See `Engine.node_environment`; Gloo would take the address of the host's name, often a loopback one."""
        return {"SGLANG_HOST_IP": span.own, "GLOO_SOCKET_IFNAME": span.interface}

    def environment(self, serve: Serve) -> dict[str, str]:
        return {**super().environment(serve), "HF_HUB_OFFLINE": "1"}

    def parallel(self, options: Options, arguments: Mapping[str, ArgumentValue], count: int) -> Parallel:
        """See `Engine.parallel`; with data-parallel attention, copies run on the tensor-parallel accelerators."""
        sizes = super().parallel(options, arguments, count)
        return replace(sizes, data=1) if argument(arguments, "--enable-dp-attention") else sizes

    def display_base(self, model_id: str) -> list[str]:
        return ["python3", "-m", "sglang.launch_server", "--model-path", model_id]


ENGINES.register("sglang", Sglang())
