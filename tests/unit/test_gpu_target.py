"""What can be checked of `make gpu-test` without a GPU; `make gpu-rehearsal` runs the rest of it with doubles."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import device_tools
import pytest
from gpu import pack, random_model
from tokenizers import Tokenizer

from servelab.assets import gguf

ROOT = Path(__file__).parents[2]
SHAPE = random_model.Shape(layers=1, width=32, heads=2, inner=64)


def prepare(tools: Path) -> subprocess.CompletedProcess[str]:
    """`prepare.py` on a machine that has these tools and no others."""
    command = [sys.executable, "tests/gpu/prepare.py"]
    return subprocess.run(command, cwd=ROOT, env={"PATH": str(tools)}, capture_output=True, text=True, check=False)


def test_a_machine_without_a_gpu_ends_with_one_line(tmp_path: Path) -> None:
    done = prepare(tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("make gpu-test: this machine has no NVIDIA GPU") and done.stderr.count("\n") == 1


def test_a_machine_without_a_compiler_ends_with_one_line(tmp_path: Path) -> None:
    device_tools.write_nvidia_smi(tmp_path, gpus=1)
    (tmp_path / "cat").symlink_to("/bin/cat")
    done = prepare(tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("make gpu-test: this machine lacks nvcc, cmake, c++, make")
    assert done.stderr.count("\n") == 1


def test_the_pack_leaves_whole_packages_out_of_the_lock() -> None:
    first, second = "# made by make\na==1 \\\n    --hash=sha256:1\n    # via b\n", "Numpy==2 \\\n    --hash=sha256:2\n"
    third = "numpy-x==3 --hash=sha256:3\n"
    assert pack.only(first + second + third, frozenset({"numpy"})) == first + third
    locked = (ROOT / "envs/workflow.lock.txt").read_text()
    assert all(f"\n{name}==" in locked for name in pack.IN_THE_IMAGE)


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("thirdparty/llama.cpp/ggml/src/ggml-cuda/mmq.cu", True),
        ("thirdparty/llama.cpp/ggml/src/ggml-vulkan/ggml-vulkan.cpp", False),
        ("thirdparty/llama.cpp/models/ggml-vocab-llama-bpe.gguf", False),
        ("thirdparty/llama.cpp/src/models/llama.cpp", True),
    ],
)
def test_the_pack_keeps_what_a_build_reads(name: str, kept: bool) -> None:
    assert (pack.NOT_READ.search(name) is None) is kept


def test_a_random_model_is_the_same_each_time_and_can_be_tokenized(tmp_path: Path) -> None:
    first, second = (random_model.write_model(tmp_path / f"{name}.gguf", SHAPE) for name in "ab")
    assert first.read_bytes() == second.read_bytes()
    tokenizer: Tokenizer = gguf.build_tokenizer(gguf.Metadata(first))
    assert tokenizer.decode(tokenizer.encode("Hello banana").ids) == "Hello banana"
