"""MindIE's configuration file: what a run writes, and what is refused. The server itself was never run here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from servelab.core.errors import ConfigError
from servelab.engines.adapters import ENGINES
from servelab.engines.server_to_start import Serve

MINDIE = ENGINES.get("mindie")


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"max_position_embeddings": 40960}))
    return folder


def written(model, options=None, arguments=None, count=2):
    serve = Serve(
        python=Path("/opt/bin/mindieservice_daemon"),
        model_path=model,
        model_name="Qwen/Qwen3-30B-A3B",
        port=4321,
        options={"tensor_parallel_size": count, **(options or {})},
        arguments=arguments or {},
        count=count,
        folder=Path("/run/folder"),
    )
    assert MINDIE.command(serve) == ["/opt/bin/mindieservice_daemon"]
    (name, text), *others = MINDIE.files(serve).items()
    assert not others
    assert MINDIE.environment(serve)["MIES_CONFIG_JSON_PATH"] == f"/run/folder/{name}"
    return json.loads(text)


def test_a_bare_configuration_serves_what_the_model_can(model):
    config = written(model)
    server, backend = config["ServerConfig"], config["BackendConfig"]
    deploy, schedule = backend["ModelDeployConfig"], backend["ScheduleConfig"]
    (served,) = deploy["ModelConfig"]
    assert config["Version"] == "1.0.0"
    assert {server[name] for name in ("ipAddress", "managementIpAddress")} == {"127.0.0.1"}
    assert {server[name] for name in ("port", "managementPort", "metricsPort")} == {4321}
    assert server["httpsEnabled"] is False
    assert backend["npuDeviceIds"] == [[0, 1]]
    assert (served["worldSize"], served["modelWeightPath"]) == (2, str(model))
    assert served["modelName"] == MINDIE.served_name("Qwen/Qwen3-30B-A3B") == "Qwen3-30B-A3B"
    assert (deploy["maxSeqLen"], deploy["maxInputTokenLen"]) == (40960, 40959)
    assert (schedule["maxIterTimes"], schedule["maxPrefillTokens"]) == (40960, 40959)
    assert (schedule["maxBatchSize"], schedule["cacheBlockSize"]) == (200, 128)
    assert "enablePrefixCache" not in schedule


def test_options_and_arguments_reach_their_keys(model):
    options = {"context_length": 4096, "max_num_seqs": 32, "max_num_batched_tokens": 8192, "prefix_caching": True}
    config = written(model, options, {"ScheduleConfig.cacheBlockSize": 64, "ModelConfig.npuMemSize": 10})
    deploy, schedule = config["BackendConfig"]["ModelDeployConfig"], config["BackendConfig"]["ScheduleConfig"]
    assert (deploy["maxSeqLen"], deploy["maxInputTokenLen"]) == (4096, 4095)
    assert (schedule["maxBatchSize"], schedule["maxPrefillBatchSize"], schedule["maxPrefillTokens"]) == (32, 32, 8192)
    assert (schedule["cacheBlockSize"], deploy["ModelConfig"][0]["npuMemSize"]) == (64, 10)
    assert schedule["enablePrefixCache"] is True
    assert json.loads(deploy["ModelConfig"][0]["plugin_params"]) == {"plugin_type": "prefix_cache"}


def test_parallel_sizes_and_plugins_reach_their_keys(model):
    options = {"tensor_parallel_size": 2, "data_parallel_size": 4, "expert_parallel": True}
    both = {"chunked_prefill": True, "prefix_caching": True}
    config = written(model, {**options, **both}, count=8)
    deploy, schedule = config["BackendConfig"]["ModelDeployConfig"], config["BackendConfig"]["ScheduleConfig"]
    served = deploy["ModelConfig"][0]
    assert [served[key] for key in ("tp", "dp", "moe_tp", "moe_ep")] == [2, 4, 1, 8]
    assert served["worldSize"] == 8
    assert json.loads(served["plugin_params"]) == {"plugin_type": "prefix_cache,splitfuse"}
    assert (schedule["templateType"], schedule["enableSplit"]) == ("Mix", True)
    drafted = written(model, {"speculative_decoding": "mtp", "speculative_tokens": 1})
    served = drafted["BackendConfig"]["ModelDeployConfig"]["ModelConfig"][0]
    assert json.loads(served["plugin_params"]) == {"plugin_type": "mtp", "num_speculative_tokens": 1}
    assert "tp" not in served
    command = MINDIE.display_command("org/m", {"max_num_seqs": 8, "chunked_prefill": True}, {}, {})
    assert "ScheduleConfig.maxBatchSize=8" in command
    assert "ScheduleConfig.templateType=Mix" in command


@pytest.mark.parametrize(
    ("options", "arguments", "wrong"),
    [
        ({}, {"ScheduleConfig.cacheBlokSize": 64}, "cacheBlokSize`; did you mean `ScheduleConfig.cacheBlockSize`"),
        ({}, {"ServerConfig.port": 8000}, "no setting `ServerConfig.port`"),
        ({}, {"ScheduleConfig.cacheBlockSize": 129}, "from 1 to 128, not 129"),
        ({}, {"ScheduleConfig.supportSelectBatch": 1}, "takes true or false, not 1"),
        ({"max_num_seqs": 8}, {"ScheduleConfig.maxBatchSize": 8}, "also set by an option"),
        ({}, {"ScheduleConfig.templateType": "Both"}, "templateType` takes Standard or Mix, not 'Both'"),
        ({"context_length": 1 << 32}, {}, "`ModelDeployConfig.maxSeqLen` takes a whole number from 1 to 4294967295"),
        ({"data_parallel_size": 2}, {}, "uses all its 2 accelerators, but the options ask for 4"),
        ({"speculative_decoding": "la"}, {}, "option `speculative_decoding` takes mtp, not la"),
        ({"speculative_decoding": "mtp", "speculative_tokens": 2}, {}, "option `speculative_tokens` takes 1, not 2"),
        ({"speculative_decoding": "mtp", "chunked_prefill": True}, {}, "`chunked_prefill` cannot be combined with"),
    ],
)
def test_what_the_vendor_does_not_allow_is_refused(model, options, arguments, wrong):
    with pytest.raises(ConfigError) as refusal:
        written(model, options, arguments)
    assert wrong in str(refusal.value)
