"""Environments pass their checks before they serve: real engines, and each lock for a GPU built afresh."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

import pytest
from engines.conftest import Installed
from tokenizers import Tokenizer, decoders, models
from tokenizers.pre_tokenizers import ByteLevel

from servelab.engines.adapters import ENGINES
from servelab.engines.runtimes import Environment
from servelab.engines.server_to_start import Setting
from servelab.measure.environment_gate import NAMES, check_environment

ROOT = Path(__file__).parents[2]
LOCKS = sorted(
    (engine, lock.name.removeprefix(f"{engine}-").removesuffix(".lock.txt"), f"envs/{lock.name}")
    for engine in ("sglang", "vllm")
    for lock in (ROOT / "envs").glob(f"{engine}-[0-9]*.lock.txt")
)


def qwen3_moe(folder: Path) -> Path:
    """`model.json` of a Qwen3 model without weights: configuration and tokenizer of the same classes, and small."""
    model = folder / "model"
    model.mkdir()
    vocabulary = {sign: number for number, sign in enumerate(sorted(ByteLevel.alphabet()))} | {"He": 256}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[("H", "e")]))
    tokenizer.pre_tokenizer, tokenizer.decoder = ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|endoftext|>"])
    tokenizer.save(str(model / "tokenizer.json"))
    (model / "vocab.json").write_text(json.dumps(vocabulary))
    (model / "merges.txt").write_text("#version: 0.2\nH e\n")
    end = {"eos_token": "<|endoftext|>", "pad_token": "<|endoftext|>"}
    (model / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "Qwen2Tokenizer", **end}))
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
    config = {
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "vocab_size": 258,
        **sizes,
        **experts,
    }
    (model / "config.json").write_text(json.dumps({**config, "rope_theta": 1000000.0}))
    source = {"kind": "path", "path": str(model), "revision": "1"}
    stored = {"path": "model", "format": "safetensors", "tokenizer": "model/tokenizer.json", "conversion": None}
    (folder / "model.json").write_text(json.dumps(stored | {"source": source}))
    return folder / "model.json"


def verdicts(checks):
    return {each.check: each.verdict for each in checks}


def test_the_environment_of_an_engine_passes(installed: Installed) -> None:
    settings = [Setting({"max_num_seqs": 4}, {}, {}), Setting({}, {"no-such-flag": None}, {})]
    engine, environment = installed.engine, installed.environment
    checks = check_environment(engine, environment, installed.model_json, "cpu", settings)
    assert [each.check for each in checks] == list(NAMES)
    assert "failed" not in verdicts(checks).values(), checks
    assert {each.check: each.saw for each in checks}["options"] == "its parser is made"


def pip(python: Path, *given: str) -> None:
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps"]
    subprocess.run([*command, "--no-cache-dir", "--no-compile", *given], check=True)


def checked(engine: str, version: str, python: Path, folder: Path) -> dict[str, str]:
    environment = Environment(
        tool=engine, version=version, runtime="venv", python=python, lock_sha256="0" * 64, packages={}
    )
    return verdicts(check_environment(ENGINES.get(engine), environment, qwen3_moe(folder), "nvidia", []))


@pytest.mark.slow
@pytest.mark.parametrize(("engine", "version", "lock"), LOCKS, ids=[lock for *_, lock in LOCKS])
def test_a_fresh_environment_of_a_lock_passes(engine, version, lock, tmp_path):
    with tempfile.TemporaryDirectory(dir=tmp_path) as folder:  # not kept, as it has several GB
        venv.create(folder, with_pip=False)
        python = Path(folder) / "bin/python"
        pip(python, "--require-hashes", "-r", str(ROOT / lock))
        found = checked(engine, version, python, tmp_path)
    assert "failed" not in found.values()
    assert {found[name] for name in ("packages", "options", "tokenizer", "configuration")} == {"ok"}
