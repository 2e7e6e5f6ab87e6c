"""The place of a run, from its manifest; also of a run from before places were recorded."""

from __future__ import annotations

from collections.abc import Iterable

from servelab.machine.devices.cpu import KEY
from servelab.machine.place import Place
from servelab.measure.run_files import RunManifest


def place_of(manifest: RunManifest) -> Place:
    """Where the run was measured."""
    devices, machine, cpu = manifest.devices, manifest.machine, manifest.machine.cpu_settings
    settings = [device.settings for device in devices if device.settings is not None]
    used = manifest.placement.devices if manifest.placement else []
    is_whole_machine = any(device.key == KEY for device in used)
    return Place(
        accelerator=_all(device.name for device in devices),
        driver=_all(device.driver for device in devices),
        runtime=_all(each.runtime for each in settings),
        mig_mode=_all(each.mig_mode for each in settings),
        ecc_mode=_all(each.ecc_mode for each in settings),
        power_limit=_all(_number(each.power_limit_w) for each in settings),
        core_clock=_all(_number(each.clock_core_mhz) for each in settings),
        memory_clock=_all(_number(each.clock_memory_mhz) for each in settings),
        cpu=machine.cpu,
        cpus=_number(machine.cpus),
        cpus_usable=_number(machine.cpus_usable) if is_whole_machine else None,
        kernel=machine.kernel,
        microcode=cpu and cpu.microcode,
        governor=cpu and cpu.governor,
        boost=cpu and cpu.boost,
        highest_mhz=cpu and cpu.highest_mhz,
        smt=cpu and cpu.smt,
        hypervisor=cpu and cpu.hypervisor,
    )


def _all(values: Iterable[str | None]) -> str | None:
    """The value that all devices share, or all values; None if none has one."""
    return "; ".join(sorted({value for value in values if value is not None})) or None


def _number(value: float | None) -> str | None:
    return None if value is None else f"{value:g}"
