"""TensorRT-LLM, through `trtllm-serve`."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from servelab.engines import ENGINES, Engine, Options, Serve, SettingsOf, flag, shown, signs, switch
from servelab.engines.evidence import Checked
from servelab.engines.layout import argument
from servelab.errors import ConfigError
from servelab.spec import ArgumentValue

_PARALLEL = {"tensor_parallel_size": ("--tp_size",), "pipeline_parallel_size": ("--pp_size",)}


def _expert_parallel(value: bool, options: Options) -> list[str]:
    """Over how many accelerators experts are dealt out: all that share a layer, as vLLM does."""
    return ["--ep_size", str(options.get("tensor_parallel_size") or 1)] if value else []


def _setting(name: str) -> SettingsOf:
    return lambda value, options: {name: value}


def _speculative(value: str, options: Options) -> dict[str, Any]:
    tokens = options.get("speculative_tokens")
    if tokens is None:
        raise ConfigError("engine tensorrt-llm: option `speculative_decoding` needs `speculative_tokens`")
    return {"speculative_config.decoding_type": value, "speculative_config.max_draft_len": tokens}


def _speculative_tokens(value: int, options: Options) -> dict[str, Any]:
    """Part of `speculative_config`."""
    if options.get("speculative_decoding") is None:
        raise ConfigError("option `speculative_tokens` needs `speculative_decoding`")
    return {}


OPTION_SETTINGS: dict[str, SettingsOf] = {
    "attention_backend": _setting("attn_backend"),
    "kv_cache_dtype": _setting("kv_cache_config.dtype"),
    "prefix_caching": _setting("kv_cache_config.enable_block_reuse"),
    "speculative_decoding": _speculative,
    "speculative_tokens": _speculative_tokens,
    "enforce_eager": lambda value, options: {"cuda_graph_config": None} if value else {},
}
"""Options that are no flags: they stand in the YAML file of the flag `--extra_llm_api_options`."""
_SETTINGS_FLAG = "--extra_llm_api_options"
_SETTINGS_FILE = "extra_llm_api_options.yaml"
_KV_CACHE_SHARE = "--kv_cache_free_gpu_memory_fraction"


class TensorrtLlm(Engine):
    """`trtllm-serve` on its PyTorch backend, the default."""

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
        **{name: shown(settings_of) for name, settings_of in OPTION_SETTINGS.items()},
    }
    option_settings: ClassVar = OPTION_SETTINGS
    option_values: ClassVar = {
        "attention_backend": ("TRTLLM", "FLASHINFER", "VANILLA"),
        "kv_cache_dtype": ("auto", "fp8"),
        "speculative_decoding": ("NGram",),  # the others need a model or heads of their own
    }
    checked = (Checked("1.2.0rc1", "source"),)
    parallel_flags: ClassVar[Mapping[str, tuple[str, ...]]] = _PARALLEL
    request_body: ClassVar = {"ignore_eos": True}
    # The parallel job ends with one of them, and the program that started it is not told (its pull request 16338).
    worker_names: ClassVar = re.compile(r"mpi4py\.futures\.server")
    log_prefix: ClassVar = re.compile(r"^\[\d\d/\d\d/\d{4}-\d\d:\d\d:\d\d\] (\[TRT-LLM\] )?\[\w+\] ")
    failure_signs: ClassVar = [
        *signs("out_of_memory", r"out ?of ?memory", "bad_alloc"),
        *signs("unsupported_argument", r"error: (no such option|invalid value|option .* requires)"),
        *signs("unsupported_argument", r"validation error for"),
        *signs("missing_model", r"is not a local folder", r"repo id must be", r"can't load the configuration"),
        *signs("missing_model", r"failed to infer model format"),
        *signs("missing_model", r"no such file or directory: .*(config|safetensors)"),
        *signs("crashed", r"no gpu devices found on the node", r"executor worker returned error"),
        *signs("crashed", r"(ValueError|RuntimeError|AssertionError|NotImplementedError|ImportError): "),
    ]

    def command(self, serve: Serve) -> list[str]:
        """See `Engine.command`; several accelerators need a word on how to share the work.

        The module is what the program `trtllm-serve` runs. It answers to any model name.
        """
        flags = self.flags(serve.options, serve.arguments)
        named = [name for names in _PARALLEL.values() for name in names]
        if serve.count > 1 and not any(part.partition("=")[0] in named for part in flags):
            wrong = f"engine tensorrt-llm would use 1 of {serve.count} accelerators"
            raise ConfigError(f"{wrong}; set {' or '.join(_PARALLEL)}")
        base = [str(serve.python), "-m", "tensorrt_llm.commands.serve", "serve", str(serve.model_path)]
        settings = [_SETTINGS_FLAG, str((serve.folder / _SETTINGS_FILE).absolute())] if self.files(serve) else []
        return [*base, "--host", serve.host, "--port", str(serve.port), *flags, *settings]

    def files(self, serve: Serve) -> dict[str, str]:
        """See `Engine.files`: the settings that are no flags, if there are any."""
        settings = _settings(serve.options, serve.arguments)
        return {_SETTINGS_FILE: json.dumps(settings, indent=2) + "\n"} if settings else {}

    def flags(self, options: Options, arguments: Mapping[str, ArgumentValue], *, joined: bool = False) -> list[str]:
        """See `Engine.flags`; without the options that stand in a file."""
        self.check_options(options)
        _settings(options, arguments)
        own = {name: value for name, value in options.items() if name not in OPTION_SETTINGS}
        return super().flags(own, arguments, joined=joined)

    def display_command(
        self,
        model_id: str,
        options: Options,
        arguments: Mapping[str, ArgumentValue],
        environment_variables: Mapping[str, str],
        *,
        joined: bool = False,
    ) -> str:
        """See `Engine.display_command`; the file stands in the command itself, as bash takes it."""
        command = super().display_command(model_id, options, arguments, environment_variables, joined=joined)
        settings = _settings(options, arguments)
        return f"{command} {_SETTINGS_FLAG} <(echo {shlex.quote(json.dumps(settings))})" if settings else command

    def environment(self, serve: Serve) -> dict[str, str]:
        """See `Engine.environment`."""
        return {**super().environment(serve), "HF_HUB_OFFLINE": "1"}

    def help_commands(self, python: Path) -> list[list[str]]:
        """See `Engine.help_commands`."""
        return [[str(python), "-m", "tensorrt_llm.commands.serve", "serve", "--help"]]

    def version_command(self, python: Path) -> list[str]:
        """See `Engine.version_command`; importing the package would look for a GPU."""
        return [str(python), "-c", "from importlib.metadata import version; print(version('tensorrt_llm'))"]

    def reset_caches(self, base_url: str) -> bool:
        """It reuses blocks of earlier prompts and cannot be told to forget them: only a restart does."""
        return False

    def display_base(self, model_id: str) -> list[str]:
        """See `Engine.display_base`."""
        return ["trtllm-serve", model_id]


def _settings(options: Options, arguments: Mapping[str, ArgumentValue]) -> dict[str, Any]:
    """The file's content; `ConfigError` where the study names a file of its own too: one of them would be lost."""
    nested: dict[str, Any] = {}
    for option, settings_of in OPTION_SETTINGS.items():
        if options.get(option) is None:
            continue
        for name, value in settings_of(options[option], options).items():
            *sections, key = name.split(".")
            place = nested
            for section in sections:
                place = place.setdefault(section, {})
            place[key] = value
    if nested and argument(arguments, _SETTINGS_FLAG) is not None:
        raise ConfigError(f"engine tensorrt-llm: the argument `{_SETTINGS_FLAG}` is set by an option too; drop one")
    share = argument(arguments, _KV_CACHE_SHARE)
    if "kv_cache_config" in nested and share is not None:
        nested["kv_cache_config"]["free_gpu_memory_fraction"] = share  # the section replaces what flags have set
    return nested


ENGINES.register("tensorrt-llm", TensorrtLlm())
