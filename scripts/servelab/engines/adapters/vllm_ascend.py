"""vLLM-Ascend: vLLM with the plugin for Ascend NPUs."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from servelab.engines.adapters import ENGINES
from servelab.engines.adapters.vllm import Vllm
from servelab.engines.options import CANN, Typed


class VllmAscend(Vllm):
    """Its version is that of the plugin, `vllm-ascend`; the flags are those of the vLLM release of the same number."""

    name = "vllm-ascend"
    typed: ClassVar[Typed | None] = replace(Vllm.typed, image=r"vllm.*ascend") if Vllm.typed else None
    option_flags: ClassVar = {name: flags for name, flags in Vllm.option_flags.items() if name != "attention_backend"}
    reads_memory = False  # NPUPlatform raises NotImplementedError (vllm_ascend/platform.py)
    option_variables: ClassVar = {}
    metric_names: ClassVar = {
        **Vllm.metric_names,
        "kv_cache_usage_fraction": ("vllm:gpu_cache_usage_perc",),  # the names of vLLM 0.9.1
        "prefix_cache_hit_tokens_total": ("vllm:gpu_prefix_cache_hits_total",),
        "prefix_cache_query_tokens_total": ("vllm:gpu_prefix_cache_queries_total",),
    }
    host_variables = CANN

    def draft(self, method: str | None, model: str | None, steps: int, branches: int) -> None:
        """See `Engine.draft`; the plugin's methods are not known here."""


ENGINES.register("vllm-ascend", VllmAscend())
