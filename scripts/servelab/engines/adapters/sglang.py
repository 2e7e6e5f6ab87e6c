"""SGLang, through its server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from servelab.core.errors import ConfigError
from servelab.core.run_spec import ArgumentValue
from servelab.engines.accelerator_boards import AcceleratorBoard
from servelab.engines.adapters import ENGINES, Engine
from servelab.engines.options import Parallel, argument, experts, flag, switch
from servelab.engines.server_to_start import Options, Serve, Span
from servelab.engines.start_rules import blocks_are_whole
from servelab.engines.traits import Settings

_CLASSES = ((20, 2048, 8, 8), (35, 4096, 48, 160), (60, 4096, 32, 160), (160, 8192, 256, 512), (1e9, 16384, 512, 512))
"""GiB of a board, exclusive → tokens of a chunk of prefill, and sequences of the largest graph: on fewer than four
accelerators, and on more (memory_hook.py of 0.5.23)."""


class Sglang(Engine):
    """SGLang's server."""

    name = "sglang"
    start_rules = (blocks_are_whole,)
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

    def defaults(
        self, version: str, board: AcceleratorBoard, options: Options, arguments: Mapping[str, ArgumentValue]
    ) -> dict[str, ArgumentValue]:
        """See `Engine.defaults`; its limit of sequences is one of the pool. MLA lowers the share by 0.01."""
        memory_gib, sizes = board.memory_gib or 80.0, self.parallel(options, arguments, 1)
        chunk, few, many = next(found for most, *found in _CLASSES if memory_gib < most)
        old = argument(arguments, "enable-dp-attention") and self.setting("data_parallel_size", options, arguments)
        graph, copies = (few if sizes.tensor < 4 else many), argument(arguments, "attn-dp-size") or old or 1
        kept = 512 + 1.5 * chunk + 128 * sizes.tensor * sizes.pipeline + 2 * graph + 320 + chunk / 64
        if isinstance(copies, int) and copies > 1:
            kept += (4.5 if graph > 300 else 3) * graph * copies
        if memory_gib > 60:
            kept = max(kept, 10240)
        return {
            "max_num_batched_tokens": 16384,
            "memory_share": round(1 - kept / 1024 / memory_gib, 3),
            "cuda-graph-max-bs-decode": graph,
            "chunked-prefill-size": chunk,
            "kv_cache_dtype": "auto",
            "prefix_caching": True,
            "chunked_prefill": True,
            "enforce_eager": False,
            "expert_parallel": False,
            "attn-dp-size": 1,
            "mamba-full-memory-ratio": 0.9,
            "stream-interval": 1,
        }

    def resolved(self, settings: dict[str, ArgumentValue]) -> dict[str, ArgumentValue]:
        """See `Engine.resolved`; attention DP over one copy is none, by its old flag too."""
        if settings.pop("disable-radix-cache", False):
            settings["prefix_caching"] = False
        if settings.pop("enable-dp-attention", False) and settings["attn-dp-size"] == 1:
            settings |= {"attn-dp-size": settings.get("data_parallel_size", 1), "data_parallel_size": 1}
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
        meet = f"{serve.span.addresses[0]}:{serve.span.port}"
        nodes = ["--nnodes", str(serve.nodes), "--node-rank", str(serve.span.rank), "--dist-init-addr", meet]
        return [*base, *flags, *address, *nodes, "--enable-metrics"]

    def draft(self, method: str | None, model: str | None, steps: int, branches: int) -> Settings | None:
        """See `Engine.draft`: EAGLE-3, and layers of the model's own weights, whatever their name."""
        is_own = bool(method and method.endswith("mtp"))
        if not is_own and method != "eagle3":
            return None
        tokens = steps + 1 if branches == 1 else steps * branches
        named: dict[str, ArgumentValue] = {"speculative-draft-model-path": model} if model else {}
        return (
            {"speculative_decoding": "NEXTN" if is_own else "EAGLE3", "speculative_tokens": tokens},
            {"speculative-num-steps": steps, "speculative-eagle-topk": branches, **named},
        )

    def display_nodes(self, command: list[str], nodes: int) -> list[str]:
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


ENGINES.register("sglang", Sglang())
