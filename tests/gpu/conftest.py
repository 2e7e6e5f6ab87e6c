"""One NVIDIA GPU for the tests of this folder: the machine's, or the doubles of its tools if `SERVELAB_GPU=doubles`.

With the doubles the server is the CPU's release of llama.cpp, so that everything but the GPU itself is real.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import device_tools
import pynvml
import pytest
from gpu import cuda_engine
from gpu.random_model import Shape, write_model

from servelab.core.yaml_file import read_yaml
from servelab.machine.devices import DEVICES, Device

ROOT = Path(__file__).parents[2]
CPU_LOCK = ROOT / "envs/llama.cpp.lock.txt"
ON_A_GPU = Shape(layers=12, width=1536, heads=12, inner=4096)
ON_A_CPU = Shape(layers=2, width=256, heads=4, inner=512)


def _load(input_tokens: int, output_tokens: int, num_requests: int) -> dict[str, int]:
    counts = {"input_tokens": input_tokens, "output_tokens": output_tokens, "num_requests": num_requests}
    return counts | {"seed": 1}


LOADS_ON_A_GPU = {"gpu-short": _load(128, 128, 64), "gpu-long": _load(900, 16, 64)}
LOADS_ON_A_CPU = {"gpu-short": _load(16, 4, 4), "gpu-long": _load(64, 4, 3)}


@dataclass(frozen=True)
class Gpu:
    """The GPU, the engine for it, and a model."""

    device: Device
    lock: Path
    version: str
    model: Path
    shape: Shape
    loads: Mapping[str, Mapping[str, int]]
    margin_percent: float
    """Of the study; one that nothing passes keeps the study's path the same on a busy CPU."""

    def memory_used(self) -> int:
        """Bytes in use, as the driver's library reports them."""
        return int(pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByUUID(self.device.key)).used)


@pytest.fixture(scope="session")
def is_real() -> bool:
    """Whether the GPU is the machine's."""
    return os.environ.get("SERVELAB_GPU") != "doubles"


@pytest.fixture(scope="session")
def doubled_tools(is_real: bool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """`nvidia-smi` and NVML of a made-up GPU, for this process and those it starts; nothing on a machine with a GPU."""
    if is_real:
        yield
        return
    folder = tmp_path_factory.mktemp("tools")
    device_tools.write_nvidia_smi(folder, gpus=1)
    library = folder / "libnvidia-ml.so.1"
    source = Path(__file__).with_name("nvml_double.c")
    key = f'-DGPU_KEY="{device_tools.gpu_key(0)}"'
    subprocess.run(["cc", "-shared", "-fPIC", "-Wall", "-Werror", key, "-o", str(library), str(source)], check=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        # Processes started from here find the double by this; this process has read the variable already.
        patch.setenv("LD_LIBRARY_PATH", f"{folder}:{os.environ.get('LD_LIBRARY_PATH', '')}")
        patch.setattr(pynvml, "nvmlLib", pynvml.CDLL(str(library)))
        yield


@pytest.fixture(scope="session")
def own_locks(tmp_path_factory: pytest.TempPathFactory, is_real: bool) -> Iterator[None]:
    """Locks of a made-up GPU in a folder of their own; a real one is locked where all its users look."""
    with pytest.MonkeyPatch.context() as patch:
        if not is_real:
            patch.setenv("SERVELAB_LOCKS", str(tmp_path_factory.mktemp("locks")))
        yield


@pytest.fixture(scope="session")
def gpu(is_real: bool, doubled_tools: None, own_locks: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gpu]:
    """The GPU with the lock of an engine for it and a model of random weights."""
    device = DEVICES.get("nvidia").find()[0]
    pynvml.nvmlInit()
    folder = tmp_path_factory.mktemp("gpu")
    if is_real:
        wheel = _cuda_wheel(device)
        lock = folder / "llama.cpp-gpu.lock.txt"
        version = cuda_engine.write_lock(wheel, lock)
    else:
        lock, version = CPU_LOCK, read_yaml(ROOT / "config/studies/cpu-smollm2.yaml")["engines"]["llama.cpp"]["version"]
    shape = ON_A_GPU if is_real else ON_A_CPU
    with pytest.MonkeyPatch.context() as patch:
        if is_real:
            patch.setenv("PIP_NO_INDEX", "1")
            patch.setenv("PIP_FIND_LINKS", str(wheel.parent))
        loads, margin_percent = (LOADS_ON_A_GPU, 3) if is_real else (LOADS_ON_A_CPU, 1000)
        yield Gpu(device, lock, version, write_model(folder / "random.gguf", shape), shape, loads, margin_percent)
    pynvml.nvmlShutdown()


def _cuda_wheel(device: Device) -> Path:
    asked = ["nvidia-smi", f"--id={device.key}", "--query-gpu=compute_cap", "--format=csv,noheader"]
    capability = subprocess.run(asked, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    folder = ROOT / "results/gpu-test"
    folder.mkdir(parents=True, exist_ok=True)
    architecture = f"{capability.replace('.', '')}-real"
    source = ROOT / ".gpu-pack/xllamacpp.tar.xz"
    return cuda_engine.build(source, folder, architecture, os.cpu_count() or 1)
