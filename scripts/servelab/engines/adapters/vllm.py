"""vLLM, through its OpenAI-compatible server."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Set
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

from packaging.version import Version

from servelab.core.errors import ConfigError
from servelab.core.run_spec import ArgumentValue
from servelab.engines.accelerator_boards import AcceleratorBoard
from servelab.engines.adapters import ENGINES, Engine
from servelab.engines.options import OPTIONS, argument, drafted, flag, switch
from servelab.engines.server_to_start import Options, Serve, Span
from servelab.engines.start_rules import VLLM_RULES
from servelab.engines.traits import Settings


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


_DRAFTS = {"speculative_decoding": "method", "speculative_tokens": "num_speculative_tokens"}


def _drafts(arguments: Mapping[str, ArgumentValue]) -> dict[str, ArgumentValue]:
    """The keys of the one JSON value that has all settings of drafts."""
    with suppress(ValueError):
        found = json.loads(str(argument(arguments, "--speculative-config", "-sc") or "{}"))
        return found if isinstance(found, dict) else {}
    return {}


_HUMAN = re.compile(r"(\d+(?:\.\d+)?)([kmgKMG])")


def _as_read(value: ArgumentValue) -> ArgumentValue:
    """A number of tokens as vLLM reads it: `32k` is 32,000, `32K` is 32,768, and -1 is `auto`."""
    if not isinstance(value, str) or not (found := _HUMAN.fullmatch(value)):
        return "auto" if value == -1 else value
    power = "kmg".index(found[2].lower()) + 1
    return int(float(found[1]) * (1000 if found[2].islower() else 1024) ** power)


class Vllm(Engine):
    """vLLM's API server; `vllm-cpu` is the build for machines without an accelerator."""

    name = "vllm"
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
    option_variables: ClassVar = {"threads": _threads}
    start_rules = VLLM_RULES
    reads_memory: ClassVar[bool] = True
    """Whether its platform tells vLLM the memory of a device, which chooses the defaults of batches."""

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
        nodes = ["--nnodes", str(serve.nodes), "--node-rank", str(serve.span.rank)]
        master = ["--master-addr", serve.span.addresses[0], "--master-port", str(serve.span.port)]
        return [*program, *flags, *address, *nodes, *master, *(["--headless"] if serve.span.rank else [])]

    def display_nodes(self, command: list[str], nodes: int) -> list[str]:
        """See `Engine.display_nodes`; `--headless` is added where RANK is not 0."""
        return [*command, "--nnodes", str(nodes), "--node-rank", "RANK", "--master-addr", "ADDRESS"]

    def setting(self, option: str, options: Options, arguments: Mapping[str, ArgumentValue]) -> ArgumentValue:
        """See `Engine.setting`; settings of drafts are keys of one JSON value."""
        if option not in _DRAFTS or options.get(option) is not None:
            value = super().setting(option, options, arguments)
            return _as_read(value) if OPTIONS[option].kind is int else value
        return _drafts(arguments).get(_DRAFTS[option])

    def draft(self, method: str | None, model: str | None, steps: int, branches: int) -> Settings | None:
        """See `Engine.draft`; it has no trees, and knows the method of many a second model by itself."""
        named = {key: value for key, value in (("method", method), ("model", model)) if value}
        given = {**named, "num_speculative_tokens": steps}
        return None if branches > 1 else ({}, {"speculative-config": json.dumps(given, separators=(",", ":"))})

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
        drafts = {name: value for name, value in _drafts(arguments).items() if name not in _DRAFTS.values()}
        return {
            **{f"speculative-config.{name}": value for name, value in drafts.items()},  # no option says their model
            "max_num_batched_tokens": tokens,
            "max_num_seqs": min(sequences, given or tokens),
            "memory_share": 0.92 if release >= Version("0.20") else 0.9,
            "kv_cache_dtype": "auto",
            "prefix_caching": True,
            "chunked_prefill": True,
            "enforce_eager": False,
            "expert_parallel": False,
            "async-scheduling": release >= Version("0.17"),
            "performance-mode": "balanced",
            "stream-interval": 1,
        }

    def resolved(self, settings: dict[str, ArgumentValue]) -> dict[str, ArgumentValue]:
        """See `Engine.resolved`; a mode is no more than its limits, and a size of the KV cache stands for the share."""
        if settings.get("enforce_eager"):
            settings.pop("max-cudagraph-capture-size", None)
        if settings.get("performance-mode") == "throughput":
            settings["performance-mode"] = "balanced"
        if settings.get("kv-cache-memory-bytes"):
            settings.pop("memory_share", None)
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


ENGINES.register("vllm", Vllm())
