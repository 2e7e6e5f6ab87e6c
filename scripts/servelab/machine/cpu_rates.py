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
from servelab.core.files import JsonFile, JsonPart
from servelab.core.identity import content_id
from servelab.machine.cpu_facts import SYSTEM, cpu_flags, cpu_model

TERA = 1e12
MIB = 2**20


class DeviceRates(JsonPart):
    """Highest rates of one device."""

    name: str = Field(description="The device.")
    memory_bytes_per_s: float = Field(description="Bandwidth of its memory, in bytes per second.")
    operations_per_s: dict[int, float] = Field(
        description="Bits of a number → multiplications and additions per second, dense."
    )
    cache_bytes: float = Field(description="Its last-level cache: what is there need not be read from memory.")
    source: str = Field(description="Where the figures are from.")
    is_measured: bool = Field(False, description="Whether a short kernel measured them on the machine.")
    noise_percent: float = Field(
        0.0, description="Of measured rates, how far the median of the repetitions is below the best, in percent."
    )

    def fastest(self, bits: float) -> float:
        """Operations per second at most on numbers of `bits` bits: they may be computed in any wider format.

        Numbers wider than the widest format count as it: engines round such weights.
        """
        usable = [rate for width, rate in self.operations_per_s.items() if width >= bits]
        return max(usable) if usable else self.operations_per_s[max(self.operations_per_s)]


_HOPPER = "NVIDIA H100 Tensor Core GPU data sheet and Hopper architecture white paper"
_HOPPER_200 = "NVIDIA H200 Tensor Core GPU data sheet"
_AMPERE = "NVIDIA A100 Tensor Core GPU data sheet and Ampere architecture white paper"
_ATLAS = (
    "Huawei, Atlas 800T A2 white paper: 313 and 376 TFLOPS FP16, 64 GB HBM2e, 1.6 TB/s; INT8: at most twice that; L2: "
    "platform files of Huawei's CANN"
)
_ATLAS_I = "Gitee AI, Ascend 910B: 280 TFLOPS FP16, 560 TOPS INT8; bandwidth and L2: those of the largest 910B"
_ATLAS_A3 = "Huawei Connect 2025: Ascend 910C, 800 TFLOPS FP16 and 3.2 TB/s, for two dies; each is a device"


def _rates(
    name: str, memory_tb_per_s: float, tera_operations: dict[int, float], cache_mib: float, source: str
) -> DeviceRates:
    return DeviceRates(
        name=name,
        memory_bytes_per_s=memory_tb_per_s * TERA,
        operations_per_s={bits: rate * TERA for bits, rate in tera_operations.items()},
        cache_bytes=cache_mib * MIB,
        source=source,
    )


PUBLISHED: tuple[tuple[str, str, DeviceRates], ...] = (
    (r"\bH100\b", r"SXM|HBM3", _rates("NVIDIA H100 SXM", 3.352, {16: 989.5, 8: 1979}, 50, _HOPPER)),
    (r"\bH100\b", r"PCIE", _rates("NVIDIA H100 PCIe", 2.04, {16: 756.5, 8: 1513}, 50, _HOPPER)),
    (r"\bH100\b", r"NVL", _rates("NVIDIA H100 NVL", 3.94, {16: 835.5, 8: 1671}, 60, _HOPPER)),
    (r"\bH200\b", r"SXM", _rates("NVIDIA H200 SXM", 4.9, {16: 989.5, 8: 1979}, 60, _HOPPER_200)),
    (r"\bH200\b", r"NVL", _rates("NVIDIA H200 NVL", 4.9, {16: 835.5, 8: 1671}, 60, _HOPPER_200)),
    (r"\bA100\b", r"40 ?G", _rates("NVIDIA A100 40GB", 1.555, {16: 312, 8: 624, 4: 1248}, 40, _AMPERE)),
    (
        r"\bA100\b",
        r"80 ?GB? PCIE|PCIE.*80",
        _rates("NVIDIA A100 80GB PCIe", 1.935, {16: 312, 8: 624, 4: 1248}, 40, _AMPERE),
    ),
    (r"\bA100\b", r"SXM.*80|80.*SXM", _rates("NVIDIA A100 80GB SXM", 2.039, {16: 312, 8: 624, 4: 1248}, 40, _AMPERE)),
    (r"910B(?!1)", r"910B2", _rates("Ascend 910B2", 1.64, {16: 376, 8: 752}, 192, _ATLAS)),
    (r"910B(?!1)", r"910B3", _rates("Ascend 910B3", 1.64, {16: 313, 8: 640}, 192, _ATLAS)),
    (r"910B(?!1)", r"910B4", _rates("Ascend 910B4", 1.64, {16: 280, 8: 560}, 192, _ATLAS_I)),
    (r"910C", r"910C", _rates("Ascend 910C, one die", 1.64, {16: 400, 8: 800}, 192, _ATLAS_A3)),
)
"""Pattern of a device's family, pattern of its variant, its rates. A figure that a source rounds is rounded up. An
H100's L2 has 50 MiB in the SXM and PCIe boards; 60 MiB is that of the whole chip. For 910B1 we know no published
figures."""


def published_rates(name: str) -> DeviceRates | None:
    """The rates of a device by its name; None if nothing is known of it.

    If the name fits several variants, such as `NVIDIA H100`, each rate is the largest of theirs, so that the bound
    holds for all.
    """
    family = [(variant, rates) for of, variant, rates in PUBLISHED if re.search(of, name, re.IGNORECASE)]
    found = [rates for variant, rates in family if re.search(variant, name, re.IGNORECASE)]
    found = found or [rates for _, rates in family]
    if len(found) < 2:
        return found[0] if found else None
    widths = {bits for rates in found for bits in rates.operations_per_s}
    return DeviceRates(
        name=f"the fastest of {', '.join(rates.name for rates in found)}",
        memory_bytes_per_s=max(rates.memory_bytes_per_s for rates in found),
        operations_per_s={bits: max(rates.operations_per_s.get(bits, 0.0) for rates in found) for bits in widths},
        cache_bytes=max(rates.cache_bytes for rates in found),
        source="; ".join(dict.fromkeys(rates.source for rates in found)),
    )


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
