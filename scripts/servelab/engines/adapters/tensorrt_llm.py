"""TensorRT-LLM, through `trtllm-serve`."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any, ClassVar

from servelab.core.errors import ConfigError
from servelab.core.run_spec import ArgumentValue
from servelab.engines.accelerator_boards import AcceleratorBoard
from servelab.engines.adapters import ENGINES, Engine
from servelab.engines.options import SettingsOf, argument, drafted, experts, flag, setting, shown, switch
from servelab.engines.server_to_start import Options, Serve


def _speculative(value: str, options: Options) -> dict[str, Any]:
    tokens = options.get("speculative_tokens")
    if tokens is None:
        raise ConfigError("engine tensorrt-llm: option `speculative_decoding` needs `speculative_tokens`")
    return {"speculative_config.decoding_type": value, "speculative_config.max_draft_len": tokens}


OPTION_SETTINGS: dict[str, SettingsOf] = {
    "attention_backend": setting("attn_backend"),
    "kv_cache_dtype": setting("kv_cache_config.dtype"),
    "prefix_caching": setting("kv_cache_config.enable_block_reuse"),
    "speculative_decoding": _speculative,
    "speculative_tokens": drafted({}),
    "enforce_eager": lambda value, options: {"cuda_graph_config": None} if value else {},
}
"""Options that are not flags: they are written to the YAML file of the flag `--extra_llm_api_options`."""
_SETTINGS_FLAG = "--extra_llm_api_options"
_SETTINGS_FILE = "extra_llm_api_options.yaml"
_SETTING = "extra_llm_api_options."
"""Begins the name of an argument that is a setting of the file: `extra_llm_api_options.moe_config.backend`."""
_KV_CACHE_SHARE = "--kv_cache_free_gpu_memory_fraction"


class TensorrtLlm(Engine):
    """`trtllm-serve` on its PyTorch backend, the default."""

    name = "tensorrt-llm"
    option_flags: ClassVar = {
        "tensor_parallel_size": flag("--tp_size"),
        "pipeline_parallel_size": flag("--pp_size"),
        "expert_parallel": experts("--ep_size"),
        "context_length": flag("--max_seq_len"),
        "max_num_batched_tokens": flag("--max_num_tokens"),
        "max_num_seqs": flag("--max_batch_size"),
        "chunked_prefill": switch("--enable_chunked_prefill"),
        **{name: shown(settings_of) for name, settings_of in OPTION_SETTINGS.items()},
    }
    option_settings: ClassVar = OPTION_SETTINGS

    def defaults(
        self, version: str, board: AcceleratorBoard, options: Options, arguments: Mapping[str, ArgumentValue]
    ) -> dict[str, ArgumentValue]:
        """See `Engine.defaults`: BaseLlmArgs of tensorrt_llm/llmapi/llm_args.py; its share is of the free memory."""
        return {
            "max_num_batched_tokens": 8192,
            "max_num_seqs": 2048,
            "memory_share": 0.9,
            "kv_cache_dtype": "auto",
            "prefix_caching": True,
            "chunked_prefill": False,
            "expert_parallel": False,
        }

    def command(self, serve: Serve) -> list[str]:
        """See `Engine.command`; the program `trtllm-serve` runs this module. It accepts any model name."""
        flags = self.flags(serve.options, serve.arguments)
        self.check_all_used(serve, flags)
        base = [str(serve.python), "-m", "tensorrt_llm.commands.serve", "serve", str(serve.model_path)]
        settings = [_SETTINGS_FLAG, str((serve.folder / _SETTINGS_FILE).absolute())] if self.files(serve) else []
        return [*base, *flags, "--host", serve.host, "--port", str(serve.port), *settings]

    def files(self, serve: Serve) -> dict[str, str]:
        """See `Engine.files`; the settings that are not flags, if there are any."""
        settings = _settings(serve.options, serve.arguments)
        return {_SETTINGS_FILE: json.dumps(settings, indent=2) + "\n"} if settings else {}

    def flags(self, options: Options, arguments: Mapping[str, ArgumentValue]) -> list[str]:
        """See `Engine.flags`; without what is in the settings file."""
        self.check_options(options)
        self.check_arguments(options, arguments)
        _settings(options, arguments)
        own = {name: value for name, value in options.items() if name not in OPTION_SETTINGS}
        flags = {name: value for name, value in arguments.items() if not name.startswith(_SETTING)}
        return super().flags(own, flags)

    def display_file(self, options: Options, arguments: Mapping[str, ArgumentValue]) -> list[str]:
        """See `Engine.display_file`; in the form that bash accepts."""
        settings = _settings(options, arguments)
        return [f"{_SETTINGS_FLAG} <(echo {shlex.quote(json.dumps(settings))})"] if settings else []

    def environment(self, serve: Serve) -> dict[str, str]:
        return {**super().environment(serve), "HF_HUB_OFFLINE": "1"}


def _list(given: str, text: ArgumentValue) -> object:
    try:
        return json.loads(str(text))
    except ValueError as error:
        raise ConfigError(f"engine tensorrt-llm: `{given}` is no list in JSON: {error}") from None


def _settings(options: Options, arguments: Mapping[str, ArgumentValue]) -> dict[str, Any]:
    """The file's content; `ConfigError` for a setting that is also a section of others."""
    named: dict[str, Any] = {}
    for option, settings_of in OPTION_SETTINGS.items():
        if options.get(option) is not None:
            named |= settings_of(options[option], options)
    for given, value in arguments.items():
        if given.startswith(_SETTING):
            named[given.removeprefix(_SETTING)] = _list(given, value) if str(value).startswith("[") else value
    nested: dict[str, Any] = {}
    for name, value in sorted(named.items()):
        *sections, key = name.split(".")
        place = nested
        for section in sections:
            place = place.setdefault(section, {})
            if not isinstance(place, dict):
                wrong = f"`{_SETTING}{name}` is in the section `{section}`, which is also given a value; remove one"
                raise ConfigError(f"engine tensorrt-llm: {wrong}")
        place[key] = value
    share = argument(arguments, _KV_CACHE_SHARE, "--free_gpu_memory_fraction")
    if "kv_cache_config" in nested and share is not None:
        nested["kv_cache_config"].setdefault("free_gpu_memory_fraction", share)  # the section overrides the flag
    return nested


ENGINES.register("tensorrt-llm", TensorrtLlm())
