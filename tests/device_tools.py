"""Doubles of the vendors' tools, which print what the real ones print on a machine of so many devices."""

from __future__ import annotations

import shlex
from pathlib import Path

DATA = Path(__file__).parent / "data/devices"


def gpu_key(index: int) -> str:
    """The UUID of a made-up GPU."""
    return f"GPU-{index:08x}-5e12-4e1a-ab00-{index:012x}"


def write_nvidia_smi(
    folder: Path,
    gpus: int = 8,
    name: str = "NVIDIA H100 80GB HBM3",
    instances: dict[int, list[str]] | None = None,
    **settings: str,
) -> None:
    """`nvidia-smi` of a machine with H100s.

    `instances` are the profiles of the instances of those GPUs that are split; `-L` lists them.
    `settings` replace those of `nvidia_log`.
    """
    driver = settings.get("driver", "570.86.10")
    listed = "".join(f"{i}, {gpu_key(i)}, {name}, {driver}, 81559\n" for i in range(gpus))
    _write(
        folder / "nvidia-smi",
        {
            "--query-gpu=*": listed,
            "-L": _gpu_list(gpus, name, instances or {}),
            "-q -x": nvidia_log(gpus, **settings),
        },
    )


def instance_key(gpu: int, number: int) -> str:
    """The UUID of a made-up MIG instance."""
    return f"MIG-{gpu:08x}-aa11-5b22-8c33-{number:012x}"


def _gpu_list(gpus: int, name: str, instances: dict[int, list[str]]) -> str:
    """What `nvidia-smi -L` prints, as in NVIDIA's MIG user guide."""
    lines = []
    for i in range(gpus):
        lines.append(f"GPU {i}: {name} (UUID: {gpu_key(i)})")
        for number, profile in enumerate(instances.get(i, [])):
            lines.append(f"  MIG {profile:<11} Device {number:>2}: (UUID: {instance_key(i, number)})")
    return "".join(f"{line}\n" for line in lines)


def nvidia_log(
    gpus: int,
    driver: str = "570.86.10",
    cuda: str = "12.8",
    mig: str = "Disabled",
    power: str = "700.00 W",
    clock: str = "1980 MHz",
) -> str:
    """What `nvidia-smi -q -x` prints of these GPUs, in the form of `nvsmi_device_v12.dtd`; only a part of its tags."""
    of_all = "".join(
        f"""
\t<gpu id="00000000:{i:02X}:00.0">
\t\t<product_name>NVIDIA H100 80GB HBM3</product_name>
\t\t<persistence_mode>Enabled</persistence_mode>
\t\t<mig_mode>
\t\t\t<current_mig>{mig}</current_mig>
\t\t\t<pending_mig>{mig}</pending_mig>
\t\t</mig_mode>
\t\t<mig_devices>
\t\t\tNone
\t\t</mig_devices>
\t\t<uuid>{gpu_key(i)}</uuid>
\t\t<vbios_version>96.00.99.00.01</vbios_version>
\t\t<ecc_mode>
\t\t\t<current_ecc>Enabled</current_ecc>
\t\t\t<pending_ecc>Enabled</pending_ecc>
\t\t</ecc_mode>
\t\t<gpu_power_readings>
\t\t\t<power_state>P0</power_state>
\t\t\t<instant_power_draw>114.52 W</instant_power_draw>
\t\t\t<current_power_limit>{power}</current_power_limit>
\t\t\t<requested_power_limit>{power}</requested_power_limit>
\t\t\t<default_power_limit>700.00 W</default_power_limit>
\t\t</gpu_power_readings>
\t\t<module_power_readings>
\t\t\t<current_power_limit>N/A</current_power_limit>
\t\t</module_power_readings>
\t\t<clocks>
\t\t\t<graphics_clock>345 MHz</graphics_clock>
\t\t</clocks>
\t\t<applications_clocks>
\t\t\t<graphics_clock>{clock}</graphics_clock>
\t\t\t<mem_clock>2619 MHz</mem_clock>
\t\t</applications_clocks>
\t\t<max_clocks>
\t\t\t<graphics_clock>1980 MHz</graphics_clock>
\t\t</max_clocks>
\t</gpu>
"""
        for i in range(gpus)
    )
    return f"""<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log>
\t<timestamp>Mon Nov 23 06:00:00 2026</timestamp>
\t<driver_version>{driver}</driver_version>
\t<cuda_version>{cuda}</cuda_version>
\t<attached_gpus>{gpus}</attached_gpus>{of_all}</nvidia_smi_log>
"""


def write_npu_smi(folder: Path, npus: int = 8) -> None:
    """`npu-smi` of a machine with cards of one 910B each."""
    columns = ("NPU ID", "Chip ID", "Chip Logic ID", "Chip Name")
    rows = [columns]
    for i in range(npus):
        rows += [(f"{i}", "0", f"{i}", "Ascend 910B3"), (f"{i}", "1", "-", "Mcu")]
    table = "".join(" " * 8 + "".join(f"{cell:<31}" for cell in row).rstrip() + "\n" for row in rows)
    asked = {f"info -t {what}": _read(f"npu-{what}.txt") for what in ("board", "common", "ecc-enable")}
    _write(folder / "npu-smi", {"info -m": table, **asked})


def write_scontrol(folder: Path, told: str) -> None:
    """`scontrol` of a cluster that tells this of every job."""
    _write(folder / "scontrol", {"show job -d *": told})


def _read(name: str) -> str:
    return (DATA / name).read_text(encoding="utf-8")


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
