"""MindIE, Huawei's server for Ascend NPUs: no flags, but a `config.json` that is written for each run.

Keys, types and ranges are those of the vendor's page on the configuration of MindIE 2.1.RC1's service and of the same
page in the MindIE-LLM repository; see docs/engines.md.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from servelab.engines import ENGINES, Engine, Options, Serve, signs
from servelab.errors import ConfigError
from servelab.registry import nearest
from servelab.spec import ArgumentValue

_UINT32 = 2**32 - 1
_LONGEST_INPUT = 4_194_304
SETTINGS: dict[str, tuple[int, int] | type[bool] | type[str]] = {
    "ServerConfig.maxLinkNum": (1, 4096),
    "ServerConfig.fullTextEnabled": bool,
    "ServerConfig.tokenTimeout": (1, 3600),
    "ServerConfig.e2eTimeout": (1, 65535),
    "ServerConfig.maxRequestLength": (1, 100),
    "BackendConfig.tokenizerProcessNumber": (1, 32),
    "ModelDeployConfig.maxSeqLen": (1, _UINT32),
    "ModelDeployConfig.maxInputTokenLen": (1, _LONGEST_INPUT),
    "ModelDeployConfig.truncation": bool,
    "ModelConfig.cpuMemSize": (0, _UINT32),
    "ModelConfig.npuMemSize": (-1, 2**31 - 1),
    "ModelConfig.backendType": str,
    "ModelConfig.trustRemoteCode": bool,
    "ModelConfig.async_scheduler_wait_time": (1, 3600),
    "ModelConfig.plugin_params": str,
    "ScheduleConfig.templateType": str,
    "ScheduleConfig.cacheBlockSize": (1, 128),
    "ScheduleConfig.maxPrefillBatchSize": (1, 5000),
    "ScheduleConfig.maxPrefillTokens": (1, _LONGEST_INPUT),
    "ScheduleConfig.prefillTimeMsPerReq": (0, 1000),
    "ScheduleConfig.prefillPolicyType": (0, 3),
    "ScheduleConfig.decodeTimeMsPerReq": (0, 1000),
    "ScheduleConfig.decodePolicyType": (0, 3),
    "ScheduleConfig.maxBatchSize": (1, 5000),
    "ScheduleConfig.maxIterTimes": (1, _UINT32),
    "ScheduleConfig.maxPreemptCount": (0, 5000),
    "ScheduleConfig.supportSelectBatch": bool,
    "ScheduleConfig.maxQueueDelayMicroseconds": (500, 1_000_000),
    "ScheduleConfig.maxFirstTokenWaitTime": (0, 3_600_000),
    "ScheduleConfig.enablePrefixCache": bool,
}
"""What a study may set: `Section.key` → the documented range, or the type."""

OPTION_SETTINGS = {
    "context_length": "ModelDeployConfig.maxSeqLen",
    "max_num_seqs": "ScheduleConfig.maxBatchSize",
    "max_num_batched_tokens": "ScheduleConfig.maxPrefillTokens",
}
_DEFAULTS: dict[str, Any] = {
    "ServerConfig.maxLinkNum": 1000,
    "BackendConfig.tokenizerProcessNumber": 8,
    "ModelConfig.cpuMemSize": 5,
    "ModelConfig.npuMemSize": -1,
    "ModelConfig.backendType": "atb",
    "ScheduleConfig.templateType": "Standard",
    "ScheduleConfig.cacheBlockSize": 128,
    "ScheduleConfig.prefillTimeMsPerReq": 150,
    "ScheduleConfig.prefillPolicyType": 0,
    "ScheduleConfig.decodeTimeMsPerReq": 50,
    "ScheduleConfig.decodePolicyType": 0,
    "ScheduleConfig.maxBatchSize": 200,
    "ScheduleConfig.maxPreemptCount": 0,
    "ScheduleConfig.supportSelectBatch": False,
    "ScheduleConfig.maxQueueDelayMicroseconds": 5000,
}
"""The vendor's defaults of the keys that must be there."""
_PREFILL_TOKENS, _PREFILL_BATCH = 8192, 50
_PREFIX_CACHE = {
    "ModelConfig.plugin_params": '{"plugin_type":"prefix_cache"}',
    "ScheduleConfig.enablePrefixCache": True,
}
_CONFIG_FILE = "mindie.json"


def _shown(setting: str) -> Any:
    return lambda value, options: [f"{setting}={value}"]


class Mindie(Engine):
    """`mindieservice_daemon`; a version is that of MindIE, without the number of its build."""

    name = "mindie"
    packages = ("mindie",)
    model_formats = ("safetensors",)
    option_flags: ClassVar = {
        # What this engine is told, in the notation of `display_command`; `files` is what it reads.
        "tensor_parallel_size": lambda value, options: [],  # `worldSize`, always the number of accelerators
        **{option: _shown(setting) for option, setting in OPTION_SETTINGS.items()},
        "prefix_caching": lambda value, options: ["--enable-prefix-caching"] if value else [],
    }
    option_variables: ClassVar = {"memory_share": lambda value: {"NPU_MEMORY_FRACTION": str(value)}}
    ready_path = "/v2/health/ready"
    metrics_path = "/metrics"
    metric_names: ClassVar = {
        "requests_running": ("num_requests_running",),
        "requests_waiting": ("num_requests_waiting",),
        "preemptions_total": ("num_preemptions_total",),
        "prompt_tokens_total": ("prompt_tokens_total",),
        "generation_tokens_total": ("generation_tokens_total",),
    }
    request_body: ClassVar = {"ignore_eos": True}
    log_prefix: ClassVar = re.compile(r"^\[\d{4}-\d\d-\d\d [\d:,.]+\] (\[[^\]]*\] )*(: )?")
    failure_signs: ClassVar = [
        *signs("out_of_memory", r"out of memory", "bad_alloc"),
        *signs("missing_model", r"no such file or directory: .*(config|safetensors)", r"modelWeightPath"),
        *signs("crashed", r"failed to init", r"(ValueError|RuntimeError|AssertionError|ImportError): "),
    ]

    def command(self, serve: Serve) -> list[str]:
        """See `Engine.command`; `serve.python` is the daemon, which finds its configuration by a variable."""
        self.check_options(serve.options)
        _chosen(serve.options, serve.arguments)
        asked = serve.options.get("tensor_parallel_size") or 1
        if asked != serve.count:
            raise ConfigError(f"engine mindie computes on all its {serve.count} accelerators, and is asked for {asked}")
        return [str(serve.python)]

    def files(self, serve: Serve) -> dict[str, str]:
        """The configuration: `ConfigError` where a value is out of its range or two contradict each other."""
        return {_CONFIG_FILE: json.dumps(_configuration(self.served_name(serve.model_name), serve), indent=2) + "\n"}

    def served_name(self, model_id: str) -> str:
        """See `Engine.served_name`; MindIE allows no slash in a name."""
        return model_id.rsplit("/", 1)[-1]

    def environment(self, serve: Serve) -> dict[str, str]:
        """See `Engine.environment`."""
        return {
            **super().environment(serve),
            "MIES_CONFIG_JSON_PATH": str((serve.folder / _CONFIG_FILE).absolute()),
            "MIES_SERVICE_MONITOR_MODE": "1",  # offers /metrics
            "MINDIE_LOG_TO_STDOUT": "1",
            "MINDIE_CHECK_INPUTFILES_PERMISSION": "0",  # it otherwise refuses files that others may read
        }

    def version_command(self, python: Path) -> list[str]:
        """See `Engine.version_command`; the daemon says nothing, the file beside its installation does."""
        return ["python3", "-c", _READ_VERSION, str(python.parent.parent.parent / "version.info")]

    def reset_caches(self, base_url: str) -> bool:
        """It cannot be told to forget prompts: only a restart does."""
        return False

    def display_base(self, model_id: str) -> list[str]:
        """The published notation; what runs is `mindieservice_daemon` with a `config.json` made of what follows."""
        return ["mindie", "serve", model_id]

    def flags(self, options: Options, arguments: Mapping[str, ArgumentValue], *, joined: bool = False) -> list[str]:
        """See `Engine.flags`; in the notation `Section.key=value`."""
        self.check_options(options)
        _chosen(options, arguments)
        own = [f"{name}={json.dumps(value)}" for name, value in arguments.items()]
        return [*own, *super().flags(options, {})]


_READ_VERSION = """\
import re, sys
print(re.search(r"^Ascend-mindie *: *MindIE +(\\S+?)(\\.B\\d+)?$", open(sys.argv[1]).read(), re.M)[1])
"""


def _chosen(options: Options, arguments: Mapping[str, ArgumentValue]) -> dict[str, Any]:
    """What options and arguments set, by `Section.key`, each checked by itself."""
    chosen: dict[str, Any] = {
        setting: options[option] for option, setting in OPTION_SETTINGS.items() if options.get(option) is not None
    }
    if options.get("prefix_caching"):
        chosen |= _PREFIX_CACHE
    for name, value in arguments.items():
        if name not in SETTINGS:
            raise ConfigError(f"engine mindie has no setting `{name}`{nearest(name, list(SETTINGS))}")
        if name in chosen:
            raise ConfigError(f"engine mindie: the argument `{name}` is set by an option too; drop one")
        chosen[name] = value
    for name, value in chosen.items():
        _check(name, value)
    return chosen


def _check(name: str, value: object) -> None:
    allowed = SETTINGS[name]
    if isinstance(allowed, tuple):
        low, high = allowed
        if type(value) is not int or not low <= value <= high:
            raise ConfigError(f"engine mindie: `{name}` takes a whole number from {low} to {high}, not {value!r}")
    elif type(value) is not allowed:
        raise ConfigError(f"engine mindie: `{name}` takes {'true or false' if allowed is bool else 'a text'}")


def _configuration(name: str, serve: Serve) -> dict[str, Any]:
    chosen = {**_DEFAULTS, **_chosen(serve.options, serve.arguments)}
    if "ModelDeployConfig.maxSeqLen" not in chosen:
        chosen["ModelDeployConfig.maxSeqLen"] = _longest_of_model(serve)
    longest = chosen["ModelDeployConfig.maxSeqLen"]
    longest_input = min(chosen.get("ModelDeployConfig.maxInputTokenLen", longest), longest - 1)
    chosen["ModelDeployConfig.maxInputTokenLen"] = longest_input
    # Of as many tokens as the longest prompt has at least: otherwise it could never be computed.
    chosen.setdefault("ScheduleConfig.maxPrefillTokens", max(_PREFILL_TOKENS, longest_input))
    chosen.setdefault("ScheduleConfig.maxPrefillBatchSize", min(_PREFILL_BATCH, chosen["ScheduleConfig.maxBatchSize"]))
    chosen.setdefault("ScheduleConfig.maxIterTimes", longest)  # its default would end every output at 512 tokens
    _check_together(chosen)
    return _document(name, serve, chosen)


def _check_together(chosen: Mapping[str, Any]) -> None:
    schedule, deploy = "ScheduleConfig", "ModelDeployConfig"
    for smaller, larger in (
        (f"{deploy}.maxInputTokenLen", f"{schedule}.maxPrefillTokens"),
        (f"{schedule}.maxPrefillBatchSize", f"{schedule}.maxBatchSize"),
        (f"{schedule}.maxIterTimes", f"{deploy}.maxSeqLen"),
        (f"{schedule}.maxPreemptCount", f"{schedule}.maxBatchSize"),
    ):
        if chosen[smaller] > chosen[larger]:
            raise ConfigError(f"engine mindie: `{smaller}` {chosen[smaller]} is above `{larger}` {chosen[larger]}")
    if chosen[f"{schedule}.maxPreemptCount"] and not chosen["ModelConfig.cpuMemSize"]:
        raise ConfigError("engine mindie: `ScheduleConfig.maxPreemptCount` above 0 needs `ModelConfig.cpuMemSize`")
    block = chosen[f"{schedule}.cacheBlockSize"]
    if block % 16:
        raise ConfigError(f"engine mindie: `ScheduleConfig.cacheBlockSize` takes a multiple of 16, not {block}")


def _longest_of_model(serve: Serve) -> int:
    """The longest sequence of the model itself, which other engines take unasked too."""
    try:
        return int(json.loads((serve.model_path / "config.json").read_bytes())["max_position_embeddings"])
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(
            f"engine mindie: {serve.model_path} does not say how long a sequence may be ({error}); set "
            "the option `context_length`"
        ) from None


def _document(name: str, serve: Serve, chosen: Mapping[str, Any]) -> dict[str, Any]:
    sections: dict[str, dict[str, Any]] = {}
    for setting, value in chosen.items():
        section, key = setting.split(".")
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
            "managementPort": serve.port,  # one address for all: documented, and one port is all a run is given
            "metricsPort": serve.port,
            "allowAllZeroIpListening": False,
            "httpsEnabled": False,
            "interCommTLSEnabled": False,
            "inferMode": "standard",
            "openAiSupport": "vllm",
            **sections.get("ServerConfig", {}),
        },
        "BackendConfig": {
            "backendName": "mindieservice_llm_engine",
            "modelInstanceNumber": 1,
            "npuDeviceIds": [list(range(serve.count))],  # counted within ASCEND_RT_VISIBLE_DEVICES
            "multiNodesInferEnabled": False,
            "interNodeTLSEnabled": False,
            **sections.get("BackendConfig", {}),
            "ModelDeployConfig": {
                "truncation": False,
                **sections["ModelDeployConfig"],
                "ModelConfig": [{**model, **sections["ModelConfig"]}],
            },
            "ScheduleConfig": {"templateName": "Standard_LLM", **sections["ScheduleConfig"]},
        },
    }


ENGINES.register("mindie", Mindie())
