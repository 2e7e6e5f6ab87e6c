"""Doubles of the vendors' tools, which print what the real ones print on a machine of so many devices."""

from __future__ import annotations

import shlex
from pathlib import Path
from random import Random

DATA = Path(__file__).parent / "data/devices"


def gpu_key(index: int) -> str:
    """The UUID of a made-up GPU."""
    return f"GPU-{index:08x}-5e12-4e1a-ab00-{index:012x}"


def write_nvidia_smi(folder: Path, gpus: int = 8, topology: str = "") -> None:
    """`nvidia-smi` of a machine with H100s; `topology` is a file in `tests/data/devices`, none by default."""
    listed = "".join(f"{i}, {gpu_key(i)}, NVIDIA H100 80GB HBM3, 570.86.10, 81559\n" for i in range(gpus))
    _write(folder / "nvidia-smi", {"--query-gpu=*": listed, "topo": _read(topology)})


def write_npu_smi(folder: Path, npus: int = 8, topology: str = "") -> None:
    """`npu-smi` of a machine with cards of one 910B each."""
    columns = ("NPU ID", "Chip ID", "Chip Logic ID", "Chip Name")
    rows = [columns]
    for i in range(npus):
        rows += [(f"{i}", "0", f"{i}", "Ascend 910B3"), (f"{i}", "1", "-", "Mcu")]
    table = "".join(" " * 8 + "".join(f"{cell:<31}" for cell in row).rstrip() + "\n" for row in rows)
    _write(folder / "npu-smi", {"info -m": table, "info -t topo": _read(topology)})


def write_scontrol(folder: Path, told: str) -> None:
    """`scontrol` of a cluster that tells this of every job."""
    _write(folder / "scontrol", {"show job -d *": told})


def damaged(text: str, draw: Random) -> str:
    """The text with pieces of it replaced, lost or doubled."""
    letters = list(text)
    for _ in range(draw.randrange(1, 60)):
        start = draw.randrange(len(letters))
        put = draw.choice(["", "\n", "\t", "  ", "X", "9", "-", ":", ",", "(", "NV", "\x1b[0m", "Ä", text[:200]])
        letters[start : start + draw.randrange(9)] = put
    return "".join(letters)


def _read(name: str) -> str:
    return (DATA / name).read_text(encoding="utf-8") if name else ""


def _write(tool: Path, answers: dict[str, str]) -> None:
    """A program that prints an answer by how its arguments begin, and fails on others, or if the answer is empty."""
    cases = ""
    for number, (pattern, answer) in enumerate(answers.items()):
        said = tool.with_name(f"{tool.name}-{number}.txt")
        said.write_text(answer, encoding="utf-8")
        quoted = pattern.replace(" ", "\\ ")
        cases += f"  {quoted}*) test -s {shlex.quote(str(said))} && exec cat {shlex.quote(str(said))} ;;\n"
    tool.write_text(f'#!/bin/sh\ncase "$*" in\n{cases}esac\nexit 3\n', encoding="utf-8")
    tool.chmod(0o755)
