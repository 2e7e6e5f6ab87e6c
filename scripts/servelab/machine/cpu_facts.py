"""Facts that the kernel and `lscpu` report: processors, their settings, processes killed for memory, the page cache."""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import re
import subprocess
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import numpy as np
from pydantic import Field

from servelab.core.files import JsonPart

CPUINFO = Path("/proc/cpuinfo")
SYSTEM = Path("/sys/devices/system/cpu")


class CpuSettings(JsonPart):
    """How the processors are set up; nulls are what the kernel does not report, as in many virtual machines."""

    microcode: str | None = Field(None, description="Revision of the processors' microcode.")
    governor: str | None = Field(None, description="Governor of the clocks, such as `performance`.")
    boost: str | None = Field(None, description="`on` or `off`: whether clocks above the base clock are allowed.")
    highest_mhz: str | None = Field(None, description="Highest clock that is allowed, in MHz.")
    smt: str | None = Field(None, description="`on` or `off`: whether cores have several hardware threads.")
    hypervisor: str | None = Field(None, description="Vendor of the hypervisor; null if `lscpu` finds none.")


def cpu_model() -> str:
    """The processor's name as the kernel or `lscpu` reports it, or `unknown`; kernels on Arm do not report it."""
    return _of_cpuinfo("model name") or _lscpu().get("Model name") or "unknown"


def cpu_flags() -> frozenset[str]:
    """Extensions of the instruction set, by the kernel's names; Arm kernels call them features."""
    return frozenset((_of_cpuinfo("flags") or _of_cpuinfo("Features") or "").split())


def cpu_settings() -> CpuSettings:
    """How the processors are set up now; several values if processors differ, such as `performance, powersave`."""
    highest = _of_each_cpu("cpufreq/scaling_max_freq")
    return CpuSettings(
        microcode=_of_cpuinfo("microcode"),
        governor=_joined(_of_each_cpu("cpufreq/scaling_governor")),
        boost=_on_off(SYSTEM / "cpufreq/boost") or _on_off(SYSTEM / "intel_pstate/no_turbo", "off", "on"),
        highest_mhz=_joined(f"{int(khz) / 1000:g}" for khz in highest if khz.isdecimal()),
        smt=_on_off(SYSTEM / "smt/active"),
        hypervisor=_lscpu().get("Hypervisor vendor"),
    )


def _of_cpuinfo(key: str) -> str | None:
    found = re.findall(rf"^{key}\s*:[ \t]*(.+)$", _read(CPUINFO) or "", re.MULTILINE)
    return _joined(value.strip() for value in found)


def _of_each_cpu(name: str) -> list[str]:
    return [text for folder in SYSTEM.glob("cpu[0-9]*") if (text := _read(folder / name))]


def _on_off(path: Path, if_one: str = "on", if_zero: str = "off") -> str | None:
    return {"1": if_one, "0": if_zero}.get(_read(path) or "")


def _joined(values: Iterable[str]) -> str | None:
    return ", ".join(sorted(set(values))) or None


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


@cache
def _lscpu() -> dict[str, str]:
    """Fields of `lscpu`; none if it is missing or prints no JSON, as before util-linux 2.30."""
    try:
        done = subprocess.run(
            ["lscpu", "-J"], capture_output=True, check=True, timeout=30, env={**os.environ, "LC_ALL": "C"}
        )
        return {each["field"].rstrip(":"): str(each["data"]) for each in _leaves(json.loads(done.stdout)["lscpu"])}
    except (OSError, subprocess.SubprocessError, ValueError, LookupError, TypeError):
        return {}


def _leaves(fields: list[dict[str, object]]) -> Iterable[dict[str, str]]:
    """Newer releases nest fields, and give those that only head others no value."""
    for each in fields:
        if each.get("data") is not None:
            yield {"field": str(each["field"]), "data": str(each["data"])}
        children = each.get("children")
        yield from _leaves(children if isinstance(children, list) else [])


def oom_kills() -> int:
    """Number of processes that the kernel has killed since boot because memory ran out; 0 if it does not report it."""
    found = re.search(r"^oom_kill (\d+)$", Path("/proc/vmstat").read_text(encoding="ascii"), re.MULTILINE)
    return int(found.group(1)) if found else 0


_CHUNK_BYTES = 1 << 30
"""Mapped at once; a multiple of every page size."""


def cached_share(path: Path) -> float | None:
    """Share of the bytes of a file, or of all files below a folder, that is in the page cache: 0 to 1.

    None if it cannot be known: nothing is there, or Linux does not show it, as for another user's file that this
    process may not write.
    """
    cached = total = 0
    try:
        for file in _files(path):
            size = file.stat().st_size
            if size:
                found = _cached_bytes(file, size)
                if found is None:
                    return None
                cached, total = cached + found, total + size
    except (OSError, ValueError, AttributeError):  # ValueError: a file that became shorter; AttributeError: no mincore
        return None
    return cached / total if total else None


def _files(path: Path) -> Iterator[Path]:
    yield from (each for each in sorted(path.rglob("*")) if each.is_file()) if path.is_dir() else (path,)


def _cached_bytes(file: Path, size: int) -> int | None:
    """Bytes of a file in the page cache; None if Linux would call all of them cached, whether they are or not."""
    with file.open("rb") as content:
        if os.fstat(content.fileno()).st_uid != os.geteuid() and not os.access(file, os.W_OK):
            return None
        return sum(
            _cached_part(content.fileno(), start, min(_CHUNK_BYTES, size - start))
            for start in range(0, size, _CHUNK_BYTES)
        )


def _cached_part(descriptor: int, start: int, length: int) -> int:
    pages = np.zeros(-(-length // mmap.PAGESIZE), dtype=np.uint8)
    with mmap.mmap(descriptor, length, prot=mmap.PROT_READ, offset=start) as mapped:
        view = np.frombuffer(mapped, dtype=np.uint8)
        address = ctypes.c_void_p(view.ctypes.data)
        failed = ctypes.CDLL(None, use_errno=True).mincore(
            address, ctypes.c_size_t(length), ctypes.c_void_p(pages.ctypes.data)
        )
        del view  # a map with a view cannot be closed
    if failed:
        raise OSError(ctypes.get_errno(), "mincore")
    cached = int(np.count_nonzero(pages & 1)) * mmap.PAGESIZE
    is_last_cached = bool(pages[-1] & 1)
    return cached - (-length % mmap.PAGESIZE if is_last_cached else 0)
