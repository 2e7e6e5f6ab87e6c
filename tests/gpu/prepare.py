"""Makes `.venv-gpu` on a machine with one NVIDIA GPU and no network, from `.gpu-pack/` and the machine's packages.

It uses the standard library only. What is missing ends in one line that says what, and exit code 2.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACK = ROOT / ".gpu-pack"
FOLDER = ROOT / ".venv-gpu"
TOOLS = ("nvcc", "cmake", "c++", "make")
MODULES = ("pip", "pytest", "Cython", "setuptools", "numpy", "pandas", "pyarrow", "tokenizers", "hf_xet")
"""What the pack leaves out, since images with PyTorch have it."""


def obstacle() -> str | None:
    """What this machine lacks, in one line, or nothing."""
    try:
        asked = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
        names = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split("\n")
    except (OSError, subprocess.CalledProcessError):
        names = []
    if not any(names):
        return "this machine has no NVIDIA GPU (nvidia-smi finds none); `make gpu-rehearsal` runs the same with doubles"
    lacking = [name for name in TOOLS if shutil.which(name) is None]
    lacking += [f"Python package {name}" for name in MODULES if importlib.util.find_spec(name) is None]
    if lacking:
        return f"this machine lacks {', '.join(lacking)}"
    missing = [name for name in ("site.tar.xz", "xllamacpp.tar.xz") if not (PACK / name).exists()]
    if missing:
        python = f"python{sys.version_info.major}.{sys.version_info.minor}"
        return f"no .gpu-pack/{missing[0]}: make it with a network, `make gpu-pack PYTHON={python}`, and copy it here"
    return None


def make_environment() -> None:
    """A virtual environment of the pack's packages, then this Python's own."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    venv.create(FOLDER, with_pip=False)
    with tarfile.open(PACK / "site.tar.xz") as file:
        file.extractall(FOLDER, filter="data")
    inside = sysconfig.get_path("purelib", vars={"base": str(FOLDER), "platbase": str(FOLDER)})
    added = [FOLDER / "site", ROOT / "scripts", sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    lines = "".join(f"{folder}\n" for folder in dict.fromkeys(map(str, added)))
    (Path(inside) / "gpu_test.pth").write_text(lines, encoding="utf-8")


if __name__ == "__main__":
    if reason := obstacle():
        print(f"make gpu-test: {reason}", file=sys.stderr)
        sys.exit(2)
    make_environment()
