"""MindIE, Huawei's server for Ascend NPUs: it has no flags, but a `config.json` that is written for each run.

Keys, types and ranges come from the vendor's pages on MindIE 2.1.RC1; required keys, from MindIE-LLM's newer source.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from servelab.core.errors import ConfigError
from servelab.core.registry import nearest
from servelab.core.run_spec import ArgumentValue
from servelab.core.yaml_file import read_shipped
from servelab.engines.adapters import ENGINES, PLANNED_MODEL, Engine
from servelab.engines.failure_signs import signs
from servelab.engines.options import SettingsOf, drafted, setting, shown
from servelab.engines.server_to_start import Options, Serve

SETTINGS: dict[str, dict[str, Any]] = read_shipped(Path(__file__).with_name("mindie_settings.yaml"))
"""`Section.key` of a setting that a study may use → what it takes, and the vendor's default of a required key."""
_PREFILL_TOKENS, _PREFILL_BATCH = 8192, 50
_DRAFTS = "mtp"
"""The only way to draft tokens that can stream, according to the vendor; `la` and `memory_decoding` cannot."""
_CONFIG_FILE = "mindie.json"


def _chunked_prefill(value: bool, options: Options) -> dict[str, Any]:
    """The vendor calls it SplitFuse."""
    split = {"ScheduleConfig.templateType": "Mix", "ScheduleConfig.enableSplit": True}
    return {**_plugins(options), **split} if value else {}


def _speculative(value: str, options: Options) -> dict[str, Any]:
    if options.get("chunked_prefill"):
        raise ConfigError("engine mindie: option `chunked_prefill` cannot be combined with `speculative_decoding`")
    return _plugins(options)


def _plugins(options: Options) -> dict[str, Any]:
    """All plugins that the options need, in the one text that MindIE reads."""
    names = [
        *([_DRAFTS] if options.get("speculative_decoding") else []),
        *(["prefix_cache"] if options.get("prefix_caching") else []),
        *(["splitfuse"] if options.get("chunked_prefill") else []),
    ]
    drafted = {"num_speculative_tokens": 1} if _DRAFTS in names else {}
    text = json.dumps({"plugin_type": ",".join(names), **drafted}, separators=(",", ":"))
    return {"ModelConfig.plugin_params": text}


OPTION_SETTINGS: dict[str, SettingsOf] = {
    "tensor_parallel_size": lambda value, options: {},  # `worldSize`, always the number of accelerators
    "data_parallel_size": lambda value, options: {
        "ModelConfig.dp": value,
        "ModelConfig.tp": _size(options, "tensor_parallel_size"),
    },
    "expert_parallel": lambda value, options: (  # all experts over all accelerators, as vLLM does
        {"ModelConfig.moe_ep": _asked_accelerators(options), "ModelConfig.moe_tp": 1} if value else {}
    ),
    "context_length": setting("ModelDeployConfig.maxSeqLen"),
    "max_num_seqs": setting("ScheduleConfig.maxBatchSize"),
    "max_num_batched_tokens": setting("ScheduleConfig.maxPrefillTokens"),
    "prefix_caching": lambda value, options: (
        {**_plugins(options), "ScheduleConfig.enablePrefixCache": True} if value else {}
    ),
    "chunked_prefill": _chunked_prefill,
    "speculative_decoding": _speculative,
    "speculative_tokens": drafted({}),
}


class Mindie(Engine):
    """`mindieservice_daemon`; its version is that of MindIE, without the build number."""

    name = "mindie"
    option_flags: ClassVar = {
        **{name: shown(settings_of) for name, settings_of in OPTION_SETTINGS.items()},
        "prefix_caching": lambda value, options: ["--enable-prefix-caching"] if value else [],  # as published
    }
    option_variables: ClassVar = {"memory_share": lambda value: {"NPU_MEMORY_FRACTION": str(value)}}
    option_settings: ClassVar = OPTION_SETTINGS
    failure_signs: ClassVar = signs(
        "unsupported_argument",
        *(r"missing compulsory field", r"the (type|value) of param \S+ ", r"must meet the"),
        *(r"\] is (out of bound|less than) \[", r"please set '\w+'", r"type only supports"),
    )

    def command(self, serve: Serve) -> list[str]:
        """See `Engine.command`; `serve.python` is the daemon, and a variable names its configuration file."""
        self.check_options(serve.options)
        if (asked := _asked_accelerators(serve.options)) != serve.count:
            raise ConfigError(f"engine mindie uses all its {serve.count} accelerators, but the options ask for {asked}")
        _chosen(serve.options, serve.arguments)
        return [str(serve.python)]

    def files(self, serve: Serve) -> dict[str, str]:
        """The configuration; `ConfigError` if a value is out of range."""
        return {_CONFIG_FILE: json.dumps(_configuration(self.served_name(serve.model_name), serve), indent=2) + "\n"}

    def served_name(self, model_id: str) -> str:
        """See `Engine.served_name`; MindIE allows no slash in a name."""
        return model_id.rsplit("/", 1)[-1]

    def environment(self, serve: Serve) -> dict[str, str]:
        return {
            **super().environment(serve),
            "MIES_CONFIG_JSON_PATH": str((serve.folder / _CONFIG_FILE).absolute()),
            "MIES_CONTAINER_IP": serve.host,  # overrides the file's addresses, and an image may have set it
            "MIES_CONTAINER_MANAGEMENT_IP": serve.host,
            "MIES_SERVICE_MONITOR_MODE": "1",  # offers /metrics
            "MINDIE_LOG_TO_STDOUT": "1",
            "MINDIE_CHECK_INPUTFILES_PERMISSION": "0",  # otherwise it refuses files that other users can read
        }

    def version_command(self, python: Path) -> list[str]:
        """See `Engine.version_command`; the daemon does not print it, but a file of its installation has it."""
        return ["python3", "-c", _READ_VERSION, str(python.parent.parent.parent / "version.info")]

    def flags(self, options: Options, arguments: Mapping[str, ArgumentValue]) -> list[str]:
        """See `Engine.flags`; displayed as `Section.key=value`."""
        self.check_options(options)
        _chosen(options, arguments)
        own = [f"{name}={json.dumps(value)}" for name, value in arguments.items()]
        return list(dict.fromkeys([*own, *super().flags(options, {})]))


_READ_VERSION = """\
import re, sys
print(re.search(r"^Ascend-mindie *: *MindIE +(\\S+?)(\\.B\\d+)?$", open(sys.argv[1]).read(), re.M)[1])
"""


def _size(options: Options, name: str) -> int:
    value = options.get(name)
    return value if isinstance(value, int) else 1


def _asked_accelerators(options: Options) -> int:
    return _size(options, "tensor_parallel_size") * _size(options, "data_parallel_size")


def _chosen(options: Options, arguments: Mapping[str, ArgumentValue]) -> dict[str, Any]:
    """The settings of options and arguments, by `Section.key`, each with a valid value."""
    chosen: dict[str, Any] = {}
    for option, settings_of in OPTION_SETTINGS.items():
        if options.get(option) is not None:
            chosen |= settings_of(options[option], options)
    for name, value in arguments.items():
        if name not in SETTINGS:
            raise ConfigError(f"engine mindie has no setting `{name}`{nearest(name, list(SETTINGS))}")
        if name in chosen:
            raise ConfigError(f"engine mindie: the argument `{name}` is also set by an option; remove one")
        chosen[name] = value
    for name, value in chosen.items():
        _check(name, value)
    return chosen


def _check(name: str, value: object) -> None:
    takes = SETTINGS[name]["takes"]
    if isinstance(takes, str):
        valid, needed = type(value) is (str if takes == "a text" else bool), takes
    elif isinstance(takes[0], int):
        valid, needed = (
            type(value) is int and takes[0] <= value <= takes[1],
            "a whole number from {} to {}".format(*takes),
        )
    else:
        valid, needed = value in takes, " or ".join(takes)
    if not valid:
        raise ConfigError(f"engine mindie: `{name}` takes {needed}, not {value!r}")


def _configuration(name: str, serve: Serve) -> dict[str, Any]:
    defaults = {name: allowed["default"] for name, allowed in SETTINGS.items() if "default" in allowed}
    chosen = {**defaults, **_chosen(serve.options, serve.arguments)}
    if "ModelDeployConfig.maxSeqLen" not in chosen and serve.model_path != PLANNED_MODEL:
        chosen["ModelDeployConfig.maxSeqLen"] = _longest_of_model(serve)
    if (longest := chosen.get("ModelDeployConfig.maxSeqLen")) is not None:  # what is planned leaves it open
        longest_input = min(chosen.get("ModelDeployConfig.maxInputTokenLen", longest), longest - 1)
        chosen["ModelDeployConfig.maxInputTokenLen"] = longest_input
        # At least as many tokens as the longest prompt: otherwise that prompt could never be computed.
        chosen.setdefault("ScheduleConfig.maxPrefillTokens", max(_PREFILL_TOKENS, longest_input))
        chosen.setdefault("ScheduleConfig.maxIterTimes", longest)  # its default would end every output at 512 tokens
    chosen.setdefault("ScheduleConfig.maxPrefillBatchSize", min(_PREFILL_BATCH, chosen["ScheduleConfig.maxBatchSize"]))
    return _document(name, serve, chosen)


def _longest_of_model(serve: Serve) -> int:
    """The model's own longest sequence in tokens, which other engines also use as their default."""
    try:
        return int(json.loads((serve.model_path / "config.json").read_bytes())["max_position_embeddings"])
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(
            f"engine mindie: {serve.model_path} does not have the longest sequence ({error}); set the option "
            "`context_length`"
        ) from None


def _document(name: str, serve: Serve, chosen: Mapping[str, Any]) -> dict[str, Any]:
    sections: dict[str, dict[str, Any]] = {}
    for named, value in chosen.items():
        section, key = named.split(".")
        sections.setdefault(section, {})[key] = value
    model = {
        "modelInstanceType": "Standard",
        "modelName": name,
        "modelWeightPath": str(serve.model_path),
        "worldSize": serve.count,
    }
    return {
        "Version": "1.0.0",
        "ServerConfig": {
            "ipAddress": serve.host,
            "managementIpAddress": serve.host,
            "port": serve.port,
            "managementPort": serve.port,  # one port for all: the vendor documents it, and a run leases one port
            "metricsPort": serve.port,
            "allowAllZeroIpListening": False,
            "httpsEnabled": False,
            "interCommTLSEnabled": False,
            "inferMode": "standard",
            "distDPServerEnabled": False,
            "openAiSupport": "vllm",
            **sections["ServerConfig"],
        },
        "BackendConfig": {
            "backendName": "mindieservice_llm_engine",
            "modelInstanceNumber": 1,
            "npuDeviceIds": [list(range(serve.count))],  # numbers within ASCEND_RT_VISIBLE_DEVICES
            "multiNodesInferEnabled": False,
            "interNodeTLSEnabled": False,
            **sections["BackendConfig"],
            "ModelDeployConfig": {
                "truncation": False,
                **sections.get("ModelDeployConfig", {}),
                "ModelConfig": [{**model, **sections["ModelConfig"]}],
            },
            "ScheduleConfig": {"templateName": "Standard_LLM", **sections["ScheduleConfig"]},
        },
    }


ENGINES.register("mindie", Mindie())
