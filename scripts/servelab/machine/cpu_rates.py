"""How fast this machine's CPUs read memory and multiply, measured by a short kernel, once per machine.

The result is kept in the user's cache folder (`XDG_CACHE_HOME`, else `~/.cache`). As long as repetitions differ much,
or other programs had the CPUs for a part of the time, the next run measures again, at most twenty times, and the best
of all is kept.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np
import psutil
from pydantic import Field

from servelab.core.errors import ServelabError
from servelab.core.identity import content_id
from servelab.core.json_file import JsonFile
from servelab.machine.cpu_facts import SYSTEM, cpu_flags, cpu_model
from servelab.machine.device_rates import MIB, DeviceRates

_KERNEL = 2
"""Raised when rates are measured in another way: those that were kept do not count then."""
_REPETITIONS = 5
_QUIET_PERCENT = 10.0
"""Noise below which a measurement is not repeated by later runs."""
_MOST = 20
"""Runs that measure at most."""
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
    measurements: int = Field(1, description="How often they were measured.")


def cpu_rates(cpus: Iterable[int]) -> DeviceRates:
    """The rates of these CPUs, measured now unless they are known; empty means all that this process may use."""
    used = sorted(cpus) or sorted(os.sched_getaffinity(0))
    facts = {"cpu": cpu_model(), "cpus": len(used), "memory": psutil.virtual_memory().total // 2**30, "kernel": _KERNEL}
    place = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "servelab"
    file = place / f"cpu-rates-{content_id(facts)}.json"
    try:
        known = KeptRates.read(file)
    except ServelabError:
        known = None
    if known is not None and (known.rates.noise_percent <= _QUIET_PERCENT or known.measurements >= _MOST):
        return known.rates
    rates = measure_rates(used)
    if known is not None:
        rates = best_of(known.rates, rates)
    try:
        place.mkdir(parents=True, exist_ok=True)
        KeptRates(rates=rates, measurements=1 + (known.measurements if known else 0)).write(file)
    except OSError:
        pass  # it is measured again by the next run
    return rates


def best_of(one: DeviceRates, other: DeviceRates) -> DeviceRates:
    """Two measurements of the same CPUs: the larger of each rate, and the smaller noise."""
    operations = {bits: max(rate, other.operations_per_s[bits]) for bits, rate in one.operations_per_s.items()}
    return other.model_copy(
        update={
            "memory_bytes_per_s": max(one.memory_bytes_per_s, other.memory_bytes_per_s),
            "operations_per_s": operations,
            "noise_percent": min(one.noise_percent, other.noise_percent),
        }
    )


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
        moved = _times(lambda: list(pool.map(lambda part: triad(*part), parts)), len(cpus))
        results = [np.empty_like(square) for _ in cpus]
        multiplied = _times(lambda: list(pool.map(lambda out: np.matmul(square, square, out=out), results)), len(cpus))
    operations = len(cpus) * 2 * _MATRIX**3 / min(multiplied.seconds)
    faster = {16: 16.0, 8: 32.0} if "amx_tile" in cpu_flags() else {16: 4.0, 8: 8.0}
    return DeviceRates(
        name=f"{cpu_model()}, {len(cpus)} CPU{'s' if len(cpus) > 1 else ''}",
        memory_bytes_per_s=len(cpus) * elements * _TRIAD_BYTES / min(moved.seconds),
        operations_per_s={32: operations} | {bits: factor * operations for bits, factor in faster.items()},
        cache_bytes=cache,
        source="measured here: a triad over arrays beyond the caches, and a product of 32-bit matrices; narrower "
        f"numbers count {faster[16]:g} and {faster[8]:g} times as fast, the most that instruction sets give",
        is_measured=True,
        noise_percent=max(moved.noise_percent, multiplied.noise_percent),
    )


class Times(NamedTuple):
    """Repetitions of a kernel."""

    seconds: list[float]
    """CPU time on each CPU, or the time on the clock if that is less: what others took does not count."""
    shares: list[float]
    """CPU time on each CPU / time on the clock: below 1 if other programs had the CPUs, or a thread waited."""

    @property
    def noise_percent(self) -> float:
        """How far the median repetition is from the best, or how much of the CPUs others had, if that is more."""
        spread = 1 - min(self.seconds) / median(self.seconds)
        return 100 * max(spread, 1 - median(self.shares), 0.0)


def _times(work: Callable[[], object], cpus: int) -> Times:
    """Times the repetitions of a kernel that works on all these CPUs, after one that is not counted."""
    work()
    found = Times([], [])
    for _ in range(_REPETITIONS):
        begin, worked = time.perf_counter(), time.process_time()
        work()
        passed, worked = time.perf_counter() - begin, (time.process_time() - worked) / cpus
        found.seconds.append(min(passed, worked))
        found.shares.append(worked / passed)
    return found


def cache_bytes(cpus: Iterable[int]) -> float:
    """Bytes of the second and third level caches of these CPUs, each once; 1 GiB if the kernel does not report them."""
    found: dict[tuple[str, str], float] = {}
    for cpu in cpus:
        for index in (SYSTEM / f"cpu{cpu}" / "cache").glob("index*"):
            level, size, shared = (_read(index / name) for name in ("level", "size", "shared_cpu_list"))
            number = re.fullmatch(r"(\d+)K", size)
            if number and level in ("2", "3", "4"):
                found[level, shared] = int(number[1]) * 1024
    return sum(found.values()) or float(_UNKNOWN_CACHE)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""
