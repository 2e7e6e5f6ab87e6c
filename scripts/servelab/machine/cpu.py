"""This machine's processors: facts that the kernel and `lscpu` report, and rates that a short kernel measures.

Measured rates are kept in the user's cache folder (`XDG_CACHE_HOME`, else `~/.cache`). If repetitions differed much, or
other programs had the CPUs for a part of the time, a run an hour later measures again, and the faster rates are kept.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from statistics import median

import numpy as np
import psutil
from pydantic import Field

from servelab.core.errors import ServelabError
from servelab.core.files import JsonFile, JsonPart
from servelab.core.identity import content_id
from servelab.machine.rates import MIB, DeviceRates

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
    """Fields of `lscpu`; none if it is missing."""
    try:
        done = subprocess.run(["lscpu"], capture_output=True, check=True, timeout=30, env={**os.environ, "LC_ALL": "C"})
    except (OSError, subprocess.SubprocessError):
        return {}
    return dict(re.findall(r"^ *([^:\n]+): *(.+)$", done.stdout.decode(errors="replace"), re.MULTILINE))


def oom_kills() -> int:
    """Number of processes that the kernel has killed since boot because memory ran out; 0 if it does not report it."""
    found = re.search(r"^oom_kill (\d+)$", Path("/proc/vmstat").read_text(encoding="ascii"), re.MULTILINE)
    return int(found.group(1)) if found else 0


def cached_share(path: Path) -> float | None:
    """Share of the bytes of a file, or of all files below a folder, that is in the page cache: 0 to 1.

    None if it cannot be known: nothing is there, or Linux does not show it, as for another user's file that this
    process may not write.
    """
    cached = total = 0
    try:
        for file in [each for each in path.rglob("*") if each.is_file()] if path.is_dir() else [path]:
            if size := file.stat().st_size:
                if file.stat().st_uid != os.geteuid() and not os.access(file, os.W_OK):
                    return None  # Linux would call all of it cached, whether it is or not
                cached, total = cached + _cached_bytes(file, size), total + size
    except (OSError, ValueError, AttributeError):  # ValueError: a file that became shorter; AttributeError: no mincore
        return None
    return cached / total if total else None


def _cached_bytes(file: Path, size: int) -> int:
    pages = np.zeros(-(-size // mmap.PAGESIZE), dtype=np.uint8)
    with file.open("rb") as content, mmap.mmap(content.fileno(), size, prot=mmap.PROT_READ) as mapped:
        view = np.frombuffer(mapped, dtype=np.uint8)
        address, length = ctypes.c_void_p(view.ctypes.data), ctypes.c_size_t(size)
        failed = ctypes.CDLL(None, use_errno=True).mincore(address, length, ctypes.c_void_p(pages.ctypes.data))
        del view  # a map with a view cannot be closed
    if failed:
        raise OSError(ctypes.get_errno(), "mincore")
    cached = int(np.count_nonzero(pages & 1)) * mmap.PAGESIZE
    return cached - (-size % mmap.PAGESIZE if pages[-1] & 1 else 0)


_KERNEL = 2
"""Raised when rates are measured in another way: those that were kept do not count then."""
_REPETITIONS = 5
_QUIET_PERCENT = 10.0
"""Noise below which a measurement is not repeated by later runs."""
_AGAIN_S = 3600.0
"""It takes seconds in which the run's devices wait, so a busy machine is not measured before each run."""
_MATRIX = 768
_TRIAD_BYTES = 48
"""Bytes that the two passes of a triad move per element: `a = s·b` reads b, and reads and writes the lines of a;
`a += c` reads a and c, and writes a."""
_MOST_BYTES = 1024 * MIB
"""Bytes of all arrays at most: a job's memory may be small. Larger caches make the bandwidth look higher, not lower."""
_UNKNOWN_CACHE = 1024 * MIB


class KeptRates(JsonFile):
    """The file in the cache folder."""

    rates: DeviceRates


def cpu_rates(cpus: Iterable[int]) -> DeviceRates:
    """The rates of these CPUs, measured now unless they are known; empty means all that this process may use."""
    used = sorted(cpus) or sorted(os.sched_getaffinity(0))
    facts = {"cpu": cpu_model(), "cpus": len(used), "memory": psutil.virtual_memory().total // 2**30, "kernel": _KERNEL}
    place = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "servelab"
    file = place / f"cpu-rates-{content_id(facts)}.json"
    try:
        known = KeptRates.read(file).rates
    except ServelabError:
        known = None
    if known and (known.noise_percent <= _QUIET_PERCENT or time.time() - file.stat().st_mtime < _AGAIN_S):
        return known
    rates = measure_rates(used)
    if known is not None:
        rates = max(known, rates, key=lambda each: each.memory_bytes_per_s)
    try:
        place.mkdir(parents=True, exist_ok=True)
        KeptRates(rates=rates).write(file)
    except OSError:
        pass  # it is measured again by the next run
    return rates


def measure_rates(cpus: list[int]) -> DeviceRates:
    """Measures the rates on so many threads as there are CPUs; takes one to a few seconds."""
    cache = cache_bytes(cpus)
    memory = psutil.virtual_memory().available
    elements = max(int(min(4 * cache, _MOST_BYTES, memory // 8)) // (3 * 8 * len(cpus)), 1)
    square = np.ones((_MATRIX, _MATRIX), dtype=np.float32)

    def arrays() -> tuple[np.ndarray, ...]:
        return tuple(np.ones(elements) for _ in range(3))

    def triad(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
        np.multiply(b, 3.0, out=a)
        np.add(a, c, out=a)

    with ThreadPoolExecutor(len(cpus)) as pool:
        parts = list(pool.map(lambda _: arrays(), cpus))
        move_s, move_noise = _timed(lambda: list(pool.map(lambda part: triad(*part), parts)), len(cpus))
        results = [np.empty_like(square) for _ in cpus]
        multiply_s, multiply_noise = _timed(
            lambda: list(pool.map(lambda out: np.matmul(square, square, out=out), results)), len(cpus)
        )
    operations = len(cpus) * 2 * _MATRIX**3 / multiply_s
    faster = {16: 16.0, 8: 32.0} if "amx_tile" in cpu_flags() else {16: 4.0, 8: 8.0}
    return DeviceRates(
        name=f"{cpu_model()}, {len(cpus)} CPU{'s' if len(cpus) > 1 else ''}",
        memory_bytes_per_s=len(cpus) * elements * _TRIAD_BYTES / move_s,
        operations_per_s={32: operations} | {bits: factor * operations for bits, factor in faster.items()},
        cache_bytes=cache,
        source="measured here: a triad over arrays beyond the caches, and a product of 32-bit matrices; narrower "
        f"numbers count {faster[16]:g} and {faster[8]:g} times as fast, the most that instruction sets give",
        is_measured=True,
        noise_percent=max(move_noise, multiply_noise),
    )


def _timed(work: Callable[[], object], cpus: int) -> tuple[float, float]:
    """(seconds, noise in percent) of the best of some repetitions of a kernel on all these CPUs, after a first one.

    Seconds are CPU time on each CPU, or the time on the clock if that is less: the time that others took does not
    count. Noise is how far the median repetition is from the best, or the share of the CPUs that others had, if that
    is more.
    """
    work()
    seconds, shares = [], []
    for _ in range(_REPETITIONS):
        begin, worked = time.perf_counter(), time.process_time()
        work()
        passed, worked = time.perf_counter() - begin, (time.process_time() - worked) / cpus
        seconds.append(min(passed, worked))
        shares.append(worked / passed)
    return min(seconds), 100 * max(1 - min(seconds) / median(seconds), 1 - median(shares), 0.0)


def cache_bytes(cpus: Iterable[int]) -> float:
    """Bytes of the second and third level caches of these CPUs, each once; 1 GiB if the kernel does not report them."""
    found: dict[tuple[str, str], float] = {}
    for cpu in cpus:
        for index in (SYSTEM / f"cpu{cpu}" / "cache").glob("index*"):
            level, size, shared = (_read(index / name) or "" for name in ("level", "size", "shared_cpu_list"))
            number = re.fullmatch(r"(\d+)K", size)
            if number and level in ("2", "3", "4"):
                found[level, shared] = int(number[1]) * 1024
    return sum(found.values()) or float(_UNKNOWN_CACHE)
