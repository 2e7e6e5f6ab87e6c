"""Facts of this machine's processors, as the kernel and `lscpu` report them."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path

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
