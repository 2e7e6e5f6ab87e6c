"""Looks at the node that will serve, before a server is started there: what would make every start fail.

Each check returns lines in the words that engines and drivers use, so that a fault has the same name and remedy as it
has in an engine's log (`servelab.engines.failure_signs`).
"""

from __future__ import annotations

import os
import re
import resource
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from servelab.engines.failure_explanation import Explanation
from servelab.engines.failure_signs import COMMON, FAULTS
from servelab.machine.devices import Device, answer, number_or_none
from servelab.measure.server import EnvironmentFault

_GIB, _MIB = 2**30, 2**20
_LEAST_SHM, _LEAST_FREE = 1 * _GIB, 0.5 * _GIB
"""Shared memory for servers of several devices (Docker's default is 64 MiB), and space in each folder for caches."""
_SHARE_OF_OTHERS = 0.1
"""Of a device's memory: a driver's own use and a desktop take less."""
_FILES, _PROCESSES = 256, 256
"""Open files besides one for each request at once, and threads."""
_FIRST_CUDA = {(8, 9): (11, 8), (9, 0): (11, 8), (10, 0): (12, 8), (10, 3): (12, 9), (12, 0): (12, 8), (12, 1): (12, 9)}
"""Compute capability → first CUDA with kernels for it; NVIDIA's release notes."""
_LAST_MAJOR = {(7, 0): 12, (7, 2): 12, (6, 1): 12, (6, 0): 12}
"""Compute capability → last major CUDA with kernels for it."""
_CACHES = (
    "HOME",
    "XDG_CACHE_HOME",
    "TMPDIR",
    "HF_HOME",
    "TRITON_CACHE_DIR",
    "TORCHINDUCTOR_CACHE_DIR",
    "VLLM_CACHE_ROOT",
)
"""Variables that name folders in which engines write."""
_ASKED = "uuid,memory.used,memory.total,compute_mode,ecc.errors.uncorrected.volatile.total,mig.mode.current,compute_cap"
_NPU = re.compile(r"^\|\s*(\d+)\s+\S+\s*\|\s*([A-Za-z]+)\s*\|", re.MULTILINE)


def check_node(
    devices: Sequence[Device],
    variables: Mapping[str, str] = os.environ,
    packages: Mapping[str, str] | None = None,
    model: Path | None = None,
    *,
    requests_at_once: int = 0,
    is_container: bool = False,
) -> None:
    """Raises `EnvironmentFault` for what would make every start on these reserved devices fail.

    `variables` are the server's, `packages` the versions of its environment's packages, `model` is its folder or file.
    A container has limits and folders of its own.
    """
    found = [*broken_devices(devices).values(), *occupied(devices), *cuda_faults(devices, packages or {})]
    if model is not None and not model.exists():
        found.append(f"path not found: {model}")
    found += proxy_of_loopback(variables)
    if not is_container:
        # engines for GPUs and NPUs compile kernels and keep them in caches
        is_accelerator = any((each.within or each.key).startswith(("GPU-", "ascend-")) for each in devices)
        found += full_folders(variables if is_accelerator else {"TMPDIR": variables.get("TMPDIR", "")})
        found += [*low_limits(requests_at_once), *small_shm(len(devices) if is_accelerator else 1)]
    for line in found:
        sign = next(sign for sign in (*FAULTS, *COMMON) if sign.pattern.search(line))
        raise EnvironmentFault(
            Explanation(sign.kind, sign.reason, f"{sign.fault}: {line}", [line], sign.remedy), "seen before the start"
        )


def healthy(devices: Sequence[Device], count: int) -> list[Device]:
    """The devices without those that are broken, if `count` are left; else all."""
    broken = broken_devices(devices)
    left = [device for device in devices if device.key not in broken]
    return left if len(left) >= count else list(devices)


def broken_devices(devices: Sequence[Device]) -> dict[str, str]:
    """Key of each device that cannot serve → why."""
    found = {}
    for device, gpu in _gpus(devices):
        if errors := int(number_or_none(gpu["ecc.errors.uncorrected.volatile.total"]) or 0):
            found[device.key] = f"GPU {device.index} has {errors} uncorrectable ECC errors"
        elif gpu["compute_mode"] == "Prohibited":
            found[device.key] = f"GPU {device.index} is in prohibited mode"
        elif gpu["mig.mode.current"] == "Enabled" and device.within is None:
            found[device.key] = f"GPU {device.index} is in MIG mode and has no instance: no CUDA-capable device"
    cards = {device.key.split("-")[1]: device for device in devices if device.key.startswith("ascend-")}
    for card, health in _NPU.findall(answer(["npu-smi", "info"])) if cards else ():
        if card in cards and health in ("Alarm", "Critical"):
            found[cards[card].key] = f"NPU {card}: device health abnormal ({health})"
    return found


def occupied(devices: Sequence[Device]) -> Iterator[str]:
    """Lines on devices that other programs use; for devices that are reserved, so that it is no other run."""
    for device, gpu in _gpus(devices):
        used, total = (number_or_none(gpu[name]) or 0.0 for name in ("memory.used", "memory.total"))
        if used <= _SHARE_OF_OTHERS * total or device.within:
            continue
        apps = answer(["nvidia-smi", "--query-compute-apps=gpu_uuid,pid", "--format=csv,noheader,nounits"])
        pids = ", ".join(re.findall(rf"{re.escape(device.key)}, *(\d+)", apps))
        by = f" (process {pids})" if pids else ""
        if gpu["compute_mode"] == "Exclusive_Process" and pids:
            yield f"GPU {device.index} is in exclusive mode, and used{by}"
        else:
            yield f"{used:.0f} of {total:.0f} MiB of GPU {device.index} are occupied by other processes{by}"


def cuda_faults(devices: Sequence[Device], packages: Mapping[str, str]) -> Iterator[str]:
    """Lines on a CUDA that the driver or the device does not fit; nothing if the environment has none."""
    if (built := cuda_of(packages)) is None:
        return
    name = f"CUDA {built[0]}.{built[1]}"
    for device, gpu in _gpus(devices):
        newest = number_or_none(device.settings.runtime if device.settings else None)
        if newest is not None and int(newest) < built[0]:
            driver = f"the driver {device.driver or ''}".strip()
            yield f"{driver} is too old: it supports CUDA {newest:g}, and the engine is built for {name}"
        major, _, minor = gpu["compute_cap"].partition(".")
        if not (major.isdecimal() and minor.isdecimal()):
            continue
        capability = int(major), int(minor)
        if built < _FIRST_CUDA.get(capability, built) or built[0] > _LAST_MAJOR.get(capability, built[0]):
            yield f"no kernel image for GPU {device.index} (sm_{major}{minor}): the engine is built for {name}"


def cuda_of(packages: Mapping[str, str]) -> tuple[int, int] | None:
    """The CUDA that an environment's PyTorch is built for; None if that is not known."""
    if found := re.search(r"\+cu(\d+)(\d)$", packages.get("torch", "")):
        return int(found[1]), int(found[2])
    for name, version in packages.items():
        if name.startswith("nvidia-cuda-runtime") and (found := re.match(r"(\d+)\.(\d+)", version)):
            return int(found[1]), int(found[2])
    return None


def full_folders(variables: Mapping[str, str]) -> Iterator[str]:
    """Lines on folders for caches and temporary files that are full or cannot be written."""
    named = [Path(variables[name]).absolute() for name in _CACHES if variables.get(name)]
    nearest = [next(each for each in (folder, *folder.parents) if each.exists()) for folder in named]
    for folder in dict.fromkeys(nearest):
        if not os.access(folder, os.W_OK):
            yield f"{folder} cannot be written: permission denied"
        elif (free := shutil.disk_usage(folder).free) < _LEAST_FREE:
            yield f"no space left on device: {free / _MIB:.0f} MiB are free in {folder}"


def low_limits(requests_at_once: int) -> Iterator[str]:
    """Lines on limits that the server would reach."""
    files, processes = (resource.getrlimit(each)[1] for each in (resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC))
    if 0 <= files < requests_at_once + _FILES:
        yield f"too many open files: `ulimit -n` is {files}, for {requests_at_once} requests at once"
    if 0 <= processes < _PROCESSES:
        yield f"can't start new thread: `ulimit -u` is {processes}"


def small_shm(devices: int, shm: Path = Path("/dev/shm")) -> Iterator[str]:  # noqa: S108 (looked at, not used)
    """A line if the processes of several devices have too little shared memory."""
    if devices > 1 and shm.is_dir() and (free := shutil.disk_usage(shm).free) < _LEAST_SHM:
        yield f"{shm} has {free / _MIB:.0f} MiB free for {devices} devices"


def proxy_of_loopback(variables: Mapping[str, str]) -> Iterator[str]:
    """A line if a proxy would get what the parts of a server ask each other."""
    given = {name.lower(): value for name, value in variables.items()}
    without = given.get("no_proxy", "")
    if given.get("http_proxy") and without != "*" and "127.0.0.1" not in without:
        yield "http_proxy is set, and no_proxy lacks 127.0.0.1"


def _gpus(devices: Iterable[Device]) -> list[tuple[Device, dict[str, str]]]:
    """Each NVIDIA GPU, or instance of one, with what the driver says of it; none if it says nothing."""
    mine = [device for device in devices if (device.within or device.key).startswith("GPU-")]
    lines = answer(["nvidia-smi", f"--query-gpu={_ASKED}", "--format=csv,noheader,nounits"]) if mine else ""
    rows = [dict(zip(_ASKED.split(","), map(str.strip, line.split(",")), strict=False)) for line in lines.splitlines()]
    of = {row["uuid"]: row for row in rows if len(row) == len(_ASKED.split(","))}
    return [(device, of[key]) for device in mine if (key := device.within or device.key) in of]
