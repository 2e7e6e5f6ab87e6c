"""Builds llama.cpp's server with CUDA from its source package, for one kind of GPU, and a lock that pins the wheel.

Nothing is downloaded: `.gpu-pack/xllamacpp.tar.xz` has the source, and compiler, CMake and Cython are the machine's.
cuBLAS is the toolkit's, or else the one that PyTorch brought as a Python package.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

from servelab.core.errors import ServelabError
from servelab.core.identity import file_sha256

CUBLAS = ("cublas", "cublasLt")
NOT_BUILT = (
    "LLAMA_LLGUIDANCE",
    "LLAMA_BUILD_BORINGSSL",
    "LLAMA_BUILD_UI",
    "LLAMA_USE_PREBUILT_UI",
    "LLAMA_BUILD_TESTS",
    "LLAMA_BUILD_EXAMPLES",
    "GGML_CUDA_NCCL",
)
"""CMake's switches of parts that a build would fetch from a network, or that one GPU does not need."""


def toolkit() -> Path:
    """CUDA's folder, as `nvcc` reports it: `nvcc` on the PATH may be a link or a wrapper."""
    asked = ["nvcc", "--dryrun", "-E", "-x", "cu", os.devnull]
    try:
        printed = subprocess.run(asked, capture_output=True, text=True, check=True).stderr
    except (OSError, subprocess.CalledProcessError):
        raise ServelabError("no working `nvcc` on the PATH: install CUDA's toolkit, or add its bin folder") from None
    found = re.search(r"^#\$ TOP=(.+)$", printed, re.MULTILINE)
    if not found:
        raise ServelabError("`nvcc --dryrun` does not print where CUDA's toolkit is (TOP=)")
    return Path(found[1]).resolve()


def cublas_package() -> Path | None:
    """The folder of NVIDIA's Python package with cuBLAS: `include` and `lib` are in it."""
    for folder in map(Path, sys.path):
        for header in sorted(folder.glob("nvidia/*/include/cublas_v2.h")):
            return header.parents[1]
    return None


def build_settings(cuda: Path, architecture: str, links: Path) -> dict[str, str]:
    """Environment variables of the build; `links` gets the libraries that the linker looks for under another name."""
    links.mkdir(parents=True, exist_ok=True)
    cmake = [f"-D{switch}=OFF" for switch in NOT_BUILT]
    includes, searched, loaded = [], [links], [cuda / "lib64"]
    if not (cuda / "include/cublas_v2.h").exists():
        package = cublas_package()
        if package is None:
            raise ServelabError(f"no cuBLAS: neither {cuda}/include/cublas_v2.h nor NVIDIA's Python package has it")
        includes.append(package / "include")
        loaded.append(package / "lib")
        for name in CUBLAS:
            library = sorted((package / "lib").glob(f"lib{name}.so.*"))[0]
            _link(links / f"lib{name}.so", library)
            cmake.append(f"-DCUDA_{name}_LIBRARY={links}/lib{name}.so")
    driver = cuda / "lib64/stubs/libcuda.so"
    if not driver.exists():
        # The driver's library is the machine's own at run time; the linker only has to know its name.
        driver = links / "libcuda.so"
        empty = ["cc", "-shared", "-x", "c", os.devnull, "-Wl,-soname,libcuda.so.1", "-o", str(driver)]
        subprocess.run(empty, check=True)
    cmake.append(f"-DCUDA_cuda_driver_LIBRARY={driver}")
    return {
        "XLLAMACPP_BUILD_CUDA": "1",
        "CUDA_ARCHITECTURES": architecture,
        "CUDA_PATH": str(cuda),
        "CUDACXX": str(cuda / "bin/nvcc"),
        "CMAKE_ARGS": " ".join(cmake),
        "CPATH": ":".join(map(str, includes)),
        "LIBRARY_PATH": ":".join(map(str, [*searched, driver.parent])),
        "LDFLAGS": " ".join(f"-Wl,-rpath,{folder}" for folder in loaded),
    }


def build(source: Path, folder: Path, architecture: str, jobs: int) -> Path:
    """The wheel, built in that folder; one that is there already is kept."""
    wheels = folder / f"wheels-{architecture}"
    if not list(wheels.glob("*.whl")):
        shutil.rmtree(folder / "source", ignore_errors=True)
        with tarfile.open(source) as file:
            file.extractall(folder / "source", filter="data")
        variables = os.environ | build_settings(toolkit(), architecture, folder / "links") | {"NPROC": str(jobs)}
        tree = next((folder / "source").iterdir())
        flags = ["--no-deps", "--no-index", "--no-build-isolation", "--disable-pip-version-check"]
        with (folder / "build.log").open("wb") as log:
            command = [sys.executable, "-m", "pip", "wheel", *flags, "--verbose", "-w", str(wheels), str(tree)]
            done = subprocess.run(command, env=variables, stdout=log, stderr=subprocess.STDOUT)
        if done.returncode:
            end = (folder / "build.log").read_text(errors="replace")[-4000:]
            raise ServelabError(f"llama.cpp could not be built; {folder}/build.log ends with\n{end}")
    return next(wheels.glob("*.whl"))


def write_lock(wheel: Path, lock: Path) -> str:
    """Pins the wheel by its hash; the version it has."""
    version = wheel.name.split("-")[1]
    lock.write_text(f"xllamacpp=={version} --hash=sha256:{file_sha256(wheel)}\n", encoding="utf-8")
    return version


def _link(link: Path, target: Path) -> None:
    link.unlink(missing_ok=True)
    link.symlink_to(target)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=Path, required=True, help="xllamacpp.tar.xz of `make gpu-pack`")
    parser.add_argument("--folder", type=Path, required=True, help="where to build")
    parser.add_argument("--architecture", required=True, help="of the GPU, as CMake names it: 90 for an H100")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="compilers at once")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    wheel = build(arguments.source, arguments.folder.absolute(), arguments.architecture, arguments.jobs)
    print(wheel, write_lock(wheel, arguments.folder / "llama.cpp-cuda.lock.txt"))


if __name__ == "__main__":
    from servelab.core.cli import run

    run(main)
