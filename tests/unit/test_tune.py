"""A user's own command becomes a study: what is read of it, what is proposed for it, and what is not."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from enum import Enum
from pathlib import Path
from unittest.mock import Mock

import pytest
import tune_command
import yaml

from servelab.core.errors import ConfigError
from servelab.core.files import CHECKOUT
from servelab.engines.adapters import ENGINES
from servelab.engines.llama_cpp_server import parameters
from servelab.search.project import load_project
from servelab.tune.levers import LEVERS
from servelab.tune.typed_command import read_command, unknown_flags

PUBLIC = [line for line in Path("tests/data/typed_commands.txt").read_text().splitlines() if line[:1] not in ("", "#")]
COMMIT = "9216db5781bf21249d130ec9da846c4624c16137"
H100 = ("--hardware", "NVIDIA H100 80GB HBM3")


@pytest.fixture(autouse=True)
def no_hub(monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> dict:
    """What `servelab tune --json` prints."""
    tune_command.main(tune_command.options().parse_args(["mine", "--json", *words]))
    return json.loads(capsys.readouterr().out)


def test_public_commands_are_rendered_again_as_they_were_typed():
    for text in PUBLIC:
        read = read_command([text])
        engine = ENGINES.get(read.engine)
        again = engine.display_command(read.model, read.options, read.arguments, read.variables)
        assert replace(read_command([again]), left_out=read.left_out) == read, text
        kept = {word for word in shlex.split(again) if word.startswith("-")}
        typed = {word.partition("=")[0] for word in shlex.split(text) if word.startswith("--")}
        same = {engine.names.of(word) for word in kept} | {engine.names.of(word) for word in read.left_out}
        assert {engine.names.of(word) for word in typed - {"--model", "--model-path", "--revision"}} <= same, text


FORMS = {
    "python": "CUDA_VISIBLE_DEVICES=0 python3.11 -m vllm.entrypoints.openai.api_server --model m/x --max-num-seqs 8",
    "docker": "docker run --gpus all --rm -v ~/c:/c -e HF_TOKEN=x -p 8000:8000 vllm/vllm-openai:v0.17.1 "
    "--model m/x --max-num-seqs 8",
    "entry point": "docker run --entrypoint vllm img/vllm serve m/x --max-num-seqs 8",
    "shell": "bash -lc 'source env/bin/activate && exec vllm serve m/x --max-num-seqs 8 > log 2>&1 &'",
    "in front": "$ time env PATH=$PATH:x srun --gres=gpu:1 numactl -m 0 uv run vllm serve m/x --max-num-seqs 8",
    "variables": "sudo docker run -itd -e M=m/x --entrypoint /bin/sh vllm/vllm-openai "
    "-c 'vllm serve $M --max-num-seqs ${N:-8}'",
    "dashes, quotes and lines": "vllm serve \u201cm/x\u201d \\ \n \u2013max-num-seqs 8 \\",
    "a list": '["python3", "-m", "vllm.entrypoints.openai.api_server", "--model", "m/x", "--max-num-seqs", "8"]',
    "switches of python": "python -O -u -m vllm.entrypoints.openai.api_server --model m/x --max-num-seqs 8",
    "a prompt": "(env) root@n1:~# vllm serve m/x --max-num-seqs 8 # as root",
    "set before": "export M=m/x\ndocker run -p 80:80 vllm/vllm-openai --model $M --max-num-seqs 8",
    "in a container": "docker exec -it c bash -i -c 'HF_HOME=/hf vllm serve m/x --max-num-seqs 8'",
    "not in full": "vllm serve m/x --max_num_se 8",
    "last of two": "vllm serve m/x --max-num-seqs 4 --max_num_seqs=8 --served-model-name a b",
}


@pytest.mark.parametrize("form", FORMS)
def test_a_command_is_found_in_what_is_around_it(form):
    read = read_command([FORMS[form]])
    assert (read.engine, read.model, read.options, read.arguments) == ("vllm", "m/x", {"max_num_seqs": 8}, {})
    assert not {"CUDA_VISIBLE_DEVICES", "HF_HOME", "M"} & read.variables.keys()


def test_a_container_of_a_file_is_read(tmp_path):
    services = {"a": {"image": "redis"}, "b": {"image": "vllm/vllm-openai", "command": "--model m/x -tp 2"}}
    container = {
        "image": "lmsysorg/sglang:v0.5.9",
        "command": ["sh", "-c"],
        "args": ["sglang serve --model m/x --tp 2"],
    }
    pods = [{"kind": "Service"}, {"spec": {"template": {"spec": {"containers": [container]}}}}]
    (tmp_path / "compose.yaml").write_text(yaml.safe_dump({"services": services}))
    (tmp_path / "pods.yaml").write_text(yaml.safe_dump_all(pods))
    for name, engine in (("compose.yaml", "vllm"), ("pods.yaml", "sglang")):
        read = read_command([str(tmp_path / name)])
        assert (read.engine, read.model, read.options) == (engine, "m/x", {"tensor_parallel_size": 2})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ls -l", "starts no engine"),
        ("vllm serve", "names no model"),
        ("llama-server -m m/x --lora a --lora b", "twice"),
        ("llama-server -m m/x -hfd o/draft:Q8_0", "takes no second model here"),
        ("vllm serve m/x --max-num-seqs $N", "does not set that variable"),
        ("sglang serve --model m/x --cuda-graph-bs 1 2 4", "several values"),
        ("vllm serve m/x --runner pooling", "--runner: the server answers with no text"),
        ("sglang serve --model m/x --is-embedding", "--is-embedding: the server answers with no text"),
        ("llama-server -m m/x --embedding", "--embedding: the server answers with no text"),
    ],
)
def test_what_cannot_be_read_is_one_error(text, message):
    with pytest.raises(ConfigError, match=message):
        read_command([text])


def test_a_model_behind_a_switch_and_flags_of_a_file_are_read(tmp_path):
    (tmp_path / "own.yaml").write_text("max-num-seqs: 4\ntensor-parallel-size: 2\nenforce-eager: true\n")
    read = read_command([f"vllm serve --config {tmp_path}/own.yaml --trust-remote-code m/x --max-num-seqs 8"])
    assert (read.model, read.arguments, read.left_out) == ("m/x", {"trust-remote-code": True}, {})
    assert read.options == {"tensor_parallel_size": 2, "max_num_seqs": 8, "enforce_eager": True}
    assert read_command(["llama-server -m m -c 0 --n-gpu-layers 9"]).arguments == {"-c": 0, "gpu-layers": 9}


def test_values_and_short_flags_mean_what_the_engine_reads():
    flags = '--gpu-memory-utilization 0.70 --enable-chunked-prefill False --trust-remote-code=True -sc={"method":"mtp"}'
    assert read_command(["vllm serve m/x --runner generate"]).arguments == {"runner": "generate"}
    read = read_command([f"vllm serve m/x {flags}"])
    assert read.options == {"memory_share": 0.7, "chunked_prefill": False}
    assert read.arguments == {"trust-remote-code": True, "-sc": '{"method":"mtp"}'}
    read = read_command(["llama-server -m m -nkvo -mla 2 --temp 0.6 -s 7"])
    assert read.arguments == {"no-kv-offload": True, "-mla": 2}  # the last is of another program
    moved = read_command(["llama-server -m m -ot a=CPU --no-mmap -ot b=CPU -ncmoe 4 --rope-scale 2 -ts 3,1"])
    assert moved.arguments["-ot"] == "a=CPU,b=CPU" and not unknown_flags(moved, "")
    assert set(read.left_out) == {"--temp", "-s"}
    modes = Enum("llama_load_mode", [f"LLAMA_LOAD_MODE_{each}" for each in ("NONE", "MLOCK", "MMAP_MLOCK")])
    chosen = parameters(Mock(llama_load_mode=modes), [("--mlock", True), ("--no-mmap", True)])
    assert chosen.load_mode is modes.LLAMA_LOAD_MODE_MLOCK  # both, as they were switches of their own


def test_flags_that_a_release_lacks_are_named_with_the_nearest():
    flags = "--gpu-memory-utilisation 0.9 --async-scheduling --rope-scaling {}"
    read = read_command([f"VLLM_ATTENTION_BACKEND=FLASHINFER vllm serve m/x {flags}"])
    found = unknown_flags(read, "0.33.0")
    assert list(found) == ["--gpu-memory-utilisation", "--rope-scaling", "VLLM_ATTENTION_BACKEND"]
    assert "--gpu-memory-utilization" in found["--gpu-memory-utilisation"] and "--hf-over" in found["--rope-scaling"]


def test_a_credential_of_the_command_is_left_out(capsys):
    token = "hf_" + "abcdefghijklmnopqrstuvwxyz123456"
    command = f"docker run -e HF_TOKEN={token} -e VLLM_X=1 vllm/vllm-openai:v0.1.2 --model m/own --hf-token {token}"
    said = asked(capsys, *H100, "--", *command.split())
    assert token not in json.dumps(said)
    assert said["study"]["baseline"]["environment_variables"] == {"VLLM_X": "1"}
    assert {"HF_TOKEN", "--hf-token"} <= {note.partition(" ")[0] for note in said["notes"]}
    assert sum("shape is not known" in note or "The image has vllm 0.1.2" in note for note in said["notes"]) == 2
    with pytest.raises(ConfigError, match="is an address") as refused:
        asked(capsys, *H100, "--", "vllm", "serve", "https://me:s3cret" + "@models.example/m")
    assert "s3cret" not in str(refused.value)


CASES = {
    "A1": ("H100 --all-engines -- vllm serve Qwen/Qwen3-32B", {"FP8 weights", "sglang at its defaults"}),
    "A8": (
        "H100 --per-node 8 --users 500 --prompt 4000 --answer 200 -- vllm serve Qwen/Qwen3-32B -tp 2",
        {"FP8 weights", "TP1", "TP4"},
    ),
    "B": ("H100 --per-node 8 -- vllm serve Qwen/Qwen3-235B-A22B-FP8 -tp 8 -ep", {"DP8 with experts", "TP4"}),
    "B4": ("H100 --per-node 8 -- vllm serve Qwen/Qwen3-235B-A22B-FP8 -tp 4", {"expert parallel"}),
    "C": (
        "A100-SXM4-80GB --per-node 4 --users 400 -- vllm serve meta-llama/Llama-3.3-70B-Instruct -tp 4",
        {"512 sequences", "INT8 weights", "TP2"},
    ),
    "D": ("H100 --per-node 2 -- vllm serve openai/gpt-oss-120b", {"TP2"}),
    "E": ("L40S --all-engines -- vllm serve google/gemma-3-27b-it", {"FP8 weights", "text only"}),
    "F": (
        "'RTX 4090' --all-engines -- vllm serve Qwen/Qwen3-8B",
        {"FP8 weights", "INT4 weights", "context 3,072", "larger graphs", "memory share 0.75", "FP8 KV cache"},
    ),
    "G": (
        "H200 --per-node 8 --users 2048 --all-engines -- vllm serve deepseek-ai/DeepSeek-V3.2 -tp 8",
        {"DP8 with experts", "DeepGEMM", "larger graphs", "mtp, 1 ahead", "DeepEP", "attention DP8"},
    ),
    "H": (
        "910B --device ascend --per-node 8 --all-engines -- vllm serve Qwen/Qwen3-30B-A3B -tp 2",
        {"INT8 weights", "TP1", "TP4", "mindie at its defaults", "bound cores"},
    ),
    "stored smaller": (
        "A100-SXM4-80GB --per-node 8 --all-engines -- vllm serve Qwen/Qwen3-235B-A22B-Instruct-2507 -tp 8",
        {"FP8 weights", "TP4", "DP8 with experts"},
    ),
    "whole channels": (
        "A100-SXM4-80GB --per-node 8 -- vllm serve zai-org/GLM-4.6-FP8 -tp 8",
        {"mode throughput", "8,192 tokens a step"},
    ),
    "few users": ("H100 --users 4 --engines sglang -- vllm serve Qwen/Qwen3-8B", {"eagle3, 4 ahead, 4 branches"}),
    "other layout": (
        "H200 --per-node 8 -- sglang serve --model deepseek-ai/DeepSeek-V3.2 --tp 8 --dp 8 --enable-dp-attention",
        {"TP8", "mtp, 1 ahead"},
    ),
    "Ascend's own": ("A100-SXM4-80GB -- vllm serve Qwen/Qwen3-30B-A3B", {"8,192 tokens a step"}),
    "llama.cpp": ("'RTX 3090' -- llama-server -m m.gguf -ub 256 -ngl 9", {"1,024 tokens a step", "gpu layers auto"}),
    "bound": ("cpu --device cpu -- llama-server -m m.gguf -c 65536", {"bound threads", "context 1,024"}),
    "held back": (
        "H100 -- vllm serve Qwen/Qwen3-32B --enforce-eager --no-async-scheduling --max-num-batched-tokens 512",
        {"16,384 tokens a step", "async scheduling true", "enforce eager false", "max num batched tokens 8192"},
    ),
    "low limit": ("H100 --users 64 -- vllm serve Qwen/Qwen3-32B --max-num-seqs 2", {"64 sequences", "eagle3, 3 ahead"}),
    "low share": ("H100 -- vllm serve Qwen/Qwen3-32B --gpu-memory-utilization 0.8", {"memory share 0.95"}),
    "own size": ("H100 -- vllm serve Qwen/Qwen3-32B --kv-cache-memory-bytes 9G", {"FP8 weights"}),
    "states": ("'RTX PRO 6000' -- vllm serve Qwen/Qwen3.8-27B", {"mtp, 1 ahead", "FP8 weights"}),
    "blocks": ("L40S --per-node 8 -- vllm serve Qwen/Qwen3-235B-A22B-FP8 -tp 4 -ep", {"TP8", "DP8 with experts"}),
    "its blocks": ("H100 --per-node 8 -- sglang serve --model Qwen/Qwen3-235B-A22B-FP8 --tp 4", {"expert parallel"}),
    "no copies": ("H200 --per-node 8 --engines tensorrt-llm -- vllm serve Qwen/Qwen3-32B -dp 8", {"larger graphs"}),
    "drafts by their model": ("L40S --users 4 -- vllm serve google/gemma-4-E4B-it", {"draft, 5 ahead"}),
    "no prefixes": ("910B --device ascend --all-engines -- vllm serve Qwen/Qwen3-8B", {"prefix cache"}),
    "GGUF": ("'RTX 4090' --all-engines -- llama-server -m own-27B-Q5_K_M.gguf -c 65536", {"context 3,072"}),
    "long prompts": (
        "H100 --prompt 8000 --answer 200 --engines tensorrt-llm -- trtllm-serve Qwen/Qwen3-32B",
        {"16,384 tokens a step", "FP8 KV cache", "chunked prefill", "context 9,216"},
    ),
}
"""Board, options and command → labels that an expert would try."""
NEVER = {
    "A1": {"256 sequences", "TP2"},
    "B": {"FP8 weights", "TP8", "TP2", "32,768 tokens a step"},
    "B4": {"TP8"},
    "C": {"FP8 weights", "FP8 KV cache"},
    "D": {"FP8 weights"},
    "E": {"16,384 tokens a step"},
    "G": {"TP4", "TP2"},
    "H": {"FP8 weights", "prefix cache"},
    "Ascend's own": {"INT8 weights", "FP8 weights"},
    "other layout": {"attention DP8", "attention DP8, memory share 0.85"},
    "low share": {"memory share 0.92"},
    "own size": {"memory share 0.95"},
    "states": {"mode throughput"},
    "its blocks": {"TP8"},
    "GGUF": {"vllm at its defaults", "FP8 weights, made at the start"},
}
"""What an expert would not try: below a default, no such units, does not fit."""


@pytest.mark.parametrize("case", CASES)
def test_what_an_expert_would_try_is_proposed(case, capsys):
    words, expected = CASES[case]
    said = asked(capsys, "--most", "30", "--hardware", *shlex.split(words))
    labels = {each["label"] for each in said["candidates"]}
    assert expected <= labels and not labels & NEVER.get(case, set())
    assert case != "E" or "servelab init" in str(said["notes"])
    assert case != "H" or "context is shorter" not in str(said["candidates"])  # the smaller weights leave room for it
    for each in said["candidates"]:
        assert each["reason"]
        changes = each["effective"].items()
        is_other = each["on"] not in (None, said["study"]["baseline"]["engine"])
        assert is_other or not changes or any(said["effective_baseline"].get(name) != value for name, value in changes)


def test_every_lever_proposes_somewhere_and_declines_somewhere(capsys):
    proposed, declined = set(), set()
    full = "vllm serve Qwen/Qwen3-32B --gpu-memory-utilization 0.95 --max-model-len 1024 --performance-mode=throughput"
    for words in (f"H100 --prompt 128 --answer 4 -- {full}", *(words for words, _ in CASES.values())):
        said = asked(capsys, "--most", "30", "--hardware", *shlex.split(words))
        proposed |= {each["lever"] for each in said["candidates"]}
        declined |= {lever.name for lever in LEVERS if lever.title in said["left_out"]}
    assert proposed == {lever.name for lever in LEVERS}
    assert declined == {lever.name for lever in LEVERS}


def test_another_engine_begins_at_its_defaults_and_has_levers_of_its_own(capsys):
    command = ("vllm", "serve", "deepseek-ai/DeepSeek-V3.2", "-tp", "8", "--gpu-memory-utilization", "0.85")
    words = ("--hardware", "NVIDIA H200", "--per-node", "8", "--all-engines", "--most", "40")
    found = {(each["on"], each["label"]): each for each in asked(capsys, *words, "--", *command)["candidates"]}
    assert found[None, "sglang at its defaults"]["options"] == {"memory_share": None}
    assert found["sglang", "attention DP8"]["arguments"] == {"attn-dp-size": 8}
    assert found["tensorrt-llm", "chunked prefill"]["effective"] == {"chunked_prefill": True}


def test_settings_that_do_nothing_are_named(capsys):
    command = "vllm serve Qwen/Qwen3-32B --max-num-seqs 1024 --max-num-batched-tokens 4096 --reasoning-parser qwen3"
    said = asked(capsys, *H100, "--", *command.split())
    assert set(said["idle"]) == {"max_num_seqs", "reasoning-parser"}
    assert "does by itself" in said["idle"]["max_num_seqs"]
    command = "vllm serve Qwen/Qwen3-32B -ep --enforce-eager --max-cudagraph-capture-size 8"
    said = asked(capsys, *H100, "--", *command.split())
    assert set(said["idle"]) == {"expert_parallel", "max-cudagraph-capture-size"}
    command = "sglang serve --model deepseek-ai/DeepSeek-V3.2 --tp 8 --enable-dp-attention"
    words = ("--hardware", "H200", "--per-node", "8", "--", *command.split())
    assert "enable-dp-attention" in asked(capsys, *words)["idle"]
    assert asked(capsys, *words, "--dp", "8")["effective_baseline"]["memory_share"] == 0.764  # as by its new flag
    assert any("--port" in note for note in asked(capsys, *H100, "--", "vllm", "serve", "x/y", "--port", "1")["notes"])


def test_a_server_on_two_nodes_has_the_users_asked_for(capsys):
    said = asked(capsys, *H100, "--per-node=8", "--users=256", "--", "vllm serve Qwen/Qwen3-235B-A22B -tp 8 -pp 2")
    assert said["study"]["objective"]["load_per"] == "node"
    assert any("256 are in" in each["reason"] for each in said["candidates"])


def test_values_in_other_notations_are_effective(capsys):
    drafts = '{"method": "eagle3", "model": "o/draft", "num_speculative_tokens": 2}'
    typed = ("vllm", "serve", "Qwen/Qwen3-32B", "--max-model-len", "32k", "--max-num-batched-tokens=8K")
    said = asked(capsys, *H100, "--", *typed, "--speculative-config", drafts)
    now, seconds = said["effective_baseline"], said["study"]["model"]["second_models"]
    own = asked(capsys, *H100, "--", "vllm", "serve", "Qwen/Qwen3-32B", "--max-model-len", "-1")["effective_baseline"]
    assert (now["context_length"], now["max_num_batched_tokens"]) == (32_000, 8192)
    assert (own["context_length"], own["max_num_batched_tokens"]) == ("auto", 8192)
    assert (now["speculative_decoding"], now["speculative_tokens"], "o/draft" in seconds) == ("eagle3", 2, True)


def test_two_commands_with_one_effective_configuration_are_one(capsys):
    throughput = "vllm serve Qwen/Qwen3-32B --max-num-seqs 2048 --max-num-batched-tokens 16384"
    said = asked(capsys, *H100, "--most", "30", "--", *f"{throughput} --performance-mode throughput".split())
    labels = {each["label"] for each in said["candidates"]}
    assert "mode throughput" not in labels and "16,384 tokens a step" not in labels
    for each in said["candidates"]:
        assert each["effective"] or each.get("weights") or each.get("engine"), each
    found = asked(capsys, *H100, "--", "vllm", "serve", "a/b")["candidates"]
    mode = next(each for each in found if "mode" in each["label"])
    assert mode["effective"]["max_num_batched_tokens"] == 16384


def test_a_slow_machine_gets_time_to_start_and_to_serve(capsys):
    words = ("--hardware", "cpu", "--device", "cpu", "--users", "8", "--prompt", "1000", "--answer", "500")
    protocol = asked(capsys, *words, "--", "vllm serve Qwen/Qwen3-0.6B --max-num-seqs 2")["study"]["protocol"]
    assert protocol["startup_timeout_s"] >= 600  # one of the studies on a CPU has 300, for 135 million parameters
    assert protocol["round_timeout_s"] > 2000


def test_slots_share_the_context_of_the_command(capsys):
    command = ("--device", "cpu", "--hardware", "cpu", "--users", "64", "--prompt", "900", "--answer", "100", "--")
    for context, labels in ((65536, ["32 sequences"]), (4096, [])):
        said = asked(capsys, *command, "llama-server", "-m", "m.gguf", "-c", str(context))["candidates"]
        assert [each["label"] for each in said if "sequences" in each["label"]] == labels


def test_the_study_is_written_checked_and_says_why(tmp_path, capsys):
    words = ["mine", *H100, "--per-node", "8", "--all-engines", "--revision", COMMIT, "--root", str(tmp_path)]
    words += ["--prompt", "2000", "--answer", "200", "--users", "64", "--slo", "ttft_ms p99 2000"]
    command = "vllm serve Qwen/Qwen3-32B -tp 2 --max-model-len 32768 --reasoning-parser qwen3 --port 80"
    tune_command.main(tune_command.options().parse_args([*words, "--", *command.split()]))
    said = capsys.readouterr().out
    file = tmp_path / "config/studies/mine.yaml"
    study = load_project(file, tmp_path).study
    assert study.baseline.options == {"tensor_parallel_size": 2, "context_length": 32768}
    assert study.baseline.arguments == {"reasoning-parser": "qwen3"}
    assert study.engines["vllm"].version == "0.33.0"  # the newest lock
    assert (study.protocol.max_concurrency, study.objective.on) == (64, "tokens-2000x200")
    assert study.protocol.startup_timeout_s == 1800  # as the closest study
    assert "p99" in str(study.objective.constraints)
    assert file.read_text().count("published: ") >= 5
    assert [each.when for each in study.stages if each.name == "chunks-tensorrt-llm"] == [{"engine": "tensorrt-llm"}]
    assert "reasoning-parser does nothing here" in file.read_text()
    assert "written and checked" in said and "gets tokens-2000x200" in said


@pytest.mark.parametrize("metric", ["goodput_per_s", "capacity_per_s", "capacity_in_flight"])
def test_a_question_that_needs_limits_gets_them_or_asks_for_them(metric, tmp_path):
    words = ["mine", *H100, "--revision", COMMIT, "--root", str(tmp_path), "--question", metric]
    command = ["--", "vllm", "serve", "Qwen/Qwen3-32B"]
    with pytest.raises(ConfigError, match=r"give its limits too, as --slo 'ttft_ms p99 2000'"):
        tune_command.main(tune_command.options().parse_args([*words, *command]))
    tune_command.main(tune_command.options().parse_args([*words, "--slo", "ttft_ms p99 2000", *command]))
    assert load_project(tmp_path / "config/studies/mine.yaml", tmp_path).study.objective.metric == metric


def test_a_trace_and_a_budget_are_parts_of_the_study(tmp_path, capsys):
    request = '{"timestamp": 0, "input_length": 900, "output_length": 50, "hash_ids": [1, 2]}\n'
    (tmp_path / "our traffic.jsonl").write_text(request * 80)
    words = ["mine", *H100, "--per-node", "2", "--revision", COMMIT, "--root", str(tmp_path), "--budget", "8h"]
    words += ["--explain", "--all-engines", "--trace", str(tmp_path / "our traffic.jsonl")]
    tune_command.main(tune_command.options().parse_args([*words, "--", "vllm serve zai-org/GLM-4.5-Air-FP8 -tp 2"]))
    study = load_project(tmp_path / "config/studies/mine.yaml", tmp_path).study
    assert (study.objective.on, study.protocol.arrivals) == ("our-traffic", "replay")
    assert study.budget.accelerator_hours == 16
    said = capsys.readouterr().out
    assert "Not proposed:" in said and "config/datasets.yaml gets our-traffic" in said
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ConfigError, match="none of the formats"):
        asked(capsys, *H100, "--trace", str(tmp_path / "other.csv"), "--", "vllm", "serve", "Qwen/Qwen3-32B")


@pytest.mark.parametrize(
    ("board", "per_node", "model", "given"),
    [
        ("NVIDIA H100 80GB HBM3", 8, "meta-llama/Llama-3.3-70B-Instruct", {"options": {"tensor_parallel_size": 4}}),
        ("NVIDIA H100 80GB HBM3", 1, "Qwen/Qwen3-32B", {"arguments": {"max-model-len": "auto"}}),
        ("NVIDIA H100 80GB HBM3", 2, "openai/gpt-oss-120b", {}),
        ("NVIDIA GeForce RTX 4090", 1, "Qwen/Qwen3-8B", {"arguments": {"max-model-len": "auto"}}),
        ("NVIDIA H200", 8, "Qwen/Qwen3-8B", {}),
        ("NVIDIA H200", 8, "deepseek-ai/DeepSeek-V3.2", {"options": {"tensor_parallel_size": 8}}),
        ("NVIDIA L40S", 1, "google/gemma-3-27b-it", {"is": "RedHatAI/gemma-3-27b-it-FP8-dynamic"}),
        ("910B", 2, "Qwen/Qwen3-30B-A3B", {"options": {"tensor_parallel_size": 2}}),
        ("NVIDIA RTX PRO 6000 Blackwell", 1, "Qwen/Qwen3.8-27B", {"options": {"max_num_seqs": 512}}),
    ],
)
def test_the_plain_baseline_of_init_starts(board, per_node, model, given, capsys):
    device = ("--device", "ascend", "--engine", "vllm-ascend") if board == "910B" else ("--engine", "vllm")
    said = asked(capsys, "--hardware", board, "--per-node", str(per_node), *device, "--model", model)["study"]
    assert said["model"]["id"] == given.pop("is", model)
    assert {name: each for name, each in said["baseline"].items() if name in ("options", "arguments")} == given


def test_a_wrong_study_leaves_nothing(tmp_path):
    words = ["mine", *H100, "--revision", COMMIT, "--root", str(tmp_path), "--prompt", "10", "--answer", "4"]
    command = ["vllm", "serve", "Qwen/Qwen3-32B", "--max-num-seqs", "2", "--mm-processor-kwargs", "{}"]
    before = (CHECKOUT / "config/workloads.yaml").read_text()
    with pytest.raises(ConfigError):
        tune_command.main(tune_command.options().parse_args([*words, "--slo", "nonsense", "--", *command]))
    assert not list(tmp_path.rglob("*.yaml"))
    assert (CHECKOUT / "config/workloads.yaml").read_text() == before


def test_predict_gives_the_search_a_prior(capsys):
    words = (*H100, "--", "vllm serve Qwen/Qwen3-32B -tp 2")
    said = asked(capsys, *words)
    assert said["study"]["search"] == {"visits": 2 * len(said["candidates"])}
    assert asked(capsys, "--predict", *words)["study"]["search"].pop("prior") == "kernel-timings"
