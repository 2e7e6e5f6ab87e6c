"""What `make gpu-test` takes to a machine without a network: `make gpu-pack` writes it into `.gpu-pack/`.

`site.tar.xz` has the locked Python packages, less those that images with PyTorch have anyway; `xllamacpp.tar.xz` has
the source package of llama.cpp's server, less what no build reads. Run it with the Python that the other machine has,
because some of the packages are compiled for one version.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

from servelab.core.errors import ServelabError

ROOT = Path(__file__).parents[2]
LOCK = ROOT / "envs/llama.cpp.lock.txt"
MOST_BYTES = 64 << 20
"""Of the archives and the checkout together: what a machine without a network may be sent at once."""
IN_THE_IMAGE = frozenset({"hf-xet", "numpy", "pandas", "pyarrow", "tokenizers"})
"""Large packages that are not carried: PyTorch's images have them, or `check_machine` says which one is missing."""
NOT_READ = re.compile(
    r"thirdparty/llama\.cpp/(models|docs|benches|tests|examples|conversion|gguf-py|media)/"
    r"|ggml/src/ggml-(opencl|vulkan|sycl|hexagon|openvino|metal|et|webgpu|cann|zdnn|virtgpu|rpc)/"
)
"""Parts of the source package: vocabularies, documents, and back ends for other devices."""
FOREIGN_SOLVER = re.compile(r"pulp/solverdir/cbc/(?!linux/i64)")
"""CBC for other systems; Snakemake's scheduler here is the greedy one."""


def only(lock: str, left_out: frozenset[str]) -> str:
    """The lock's text less those packages; a package is a line with its version and the indented lines below it."""
    blocks = re.split(r"^(?=[A-Za-z0-9])", lock, flags=re.MULTILINE)
    return "".join(block for block in blocks if block.split("==")[0].lower() not in left_out)


def pack_folder(folder: Path, archive: Path, keep: Callable[[str], bool]) -> None:
    """The folder's files as a tar.xz, in order, with names below the folder's own name."""

    def entry(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
        inside = info.name.partition("/")[2] + ("/" if info.isdir() else "")
        return info if keep(inside) else None

    with tarfile.open(archive, "w:xz", preset=6) as file:
        file.add(folder, folder.name, filter=entry)


def pack_packages(archive: Path) -> None:
    """The workflow's packages, installed into one folder."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "lock.txt").write_text(only((ROOT / "envs/workflow.lock.txt").read_text(), IN_THE_IMAGE))
        _pip("wheel", "--no-deps", "--require-hashes", "-r", f"{folder}/lock.txt", "-w", f"{folder}/wheels")
        wheels = [str(wheel) for wheel in sorted((folder / "wheels").iterdir())]
        _pip("install", "--no-index", "--no-deps", "--no-compile", "--target", f"{folder}/site", *wheels)
        shutil.rmtree(folder / "site/bin", ignore_errors=True)
        pack_folder(folder / "site", archive, lambda name: not FOREIGN_SOLVER.match(name))


def pack_source(archive: Path, downloads: Path) -> None:
    """The engine's source package as its lock has it, less what no build reads."""
    if not list(downloads.glob("xllamacpp-*.tar.gz")):
        _pip(
            "download",
            "--no-deps",
            "--no-binary",
            "xllamacpp",
            "--require-hashes",
            "-r",
            str(LOCK),
            "-d",
            str(downloads),
        )
    found = list(downloads.glob("xllamacpp-*.tar.gz"))
    with tempfile.TemporaryDirectory() as temporary:
        with tarfile.open(found[0]) as file:
            file.extractall(temporary, filter="data")
        pack_folder(next(Path(temporary).iterdir()), archive, lambda name: not NOT_READ.search(name))


def checkout_bytes() -> int:
    """Of all files that git tracks."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
    files = [ROOT / name.decode() for name in listed.split(b"\0") if name]
    return sum(file.stat().st_size for file in files if file.is_file() and not file.is_symlink())


def _pip(*arguments: str) -> None:
    done = subprocess.run([sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments])
    if done.returncode:
        raise ServelabError(f"pip {arguments[0]} failed, see its lines above")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True, help="folder of the two archives")
    parser.add_argument("--downloads", type=Path, required=True, help="folder of the source package as published")
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    arguments.downloads.mkdir(parents=True, exist_ok=True)
    archives = [arguments.output / "site.tar.xz", arguments.output / "xllamacpp.tar.xz"]
    pack_packages(archives[0])
    pack_source(archives[1], arguments.downloads)
    sizes = {str(archive): archive.stat().st_size for archive in archives} | {"the checkout": checkout_bytes()}
    for name, size in sizes.items():
        print(f"{size / 2**20:6.1f} MiB  {name}")
    total = sum(sizes.values())
    print(f"{total / 2**20:6.1f} MiB  together, of {MOST_BYTES >> 20}")
    if total > MOST_BYTES:
        raise ServelabError("the archives and the checkout are too large for one transfer")


if __name__ == "__main__":
    from servelab.core.cli import run

    run(main)
