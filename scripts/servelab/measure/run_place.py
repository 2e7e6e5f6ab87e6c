"""The place of a run, from its manifest; also of a run from before places were recorded."""

from __future__ import annotations

from collections.abc import Iterable

from servelab.machine.cpu_facts import CpuSettings
from servelab.machine.devices.cpu import KEY
from servelab.machine.place import Place
from servelab.measure.run_files import RunManifest


def place_of(manifest: RunManifest) -> Place:
    """Where the run was measured."""
    others = manifest.other_nodes
    devices = [*manifest.devices, *(device for node in others for device in node.devices)]
    machines = [manifest.machine, *(node.machine for node in others)]
    cpus = [machine.cpu_settings or CpuSettings() for machine in machines]
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
        cpu=_all(machine.cpu for machine in machines),
        cpus=_all(_number(machine.cpus) for machine in machines),
        cpus_usable=_all(_number(machine.cpus_usable) for machine in machines) if is_whole_machine else None,
        kernel=_all(machine.kernel for machine in machines),
        microcode=_all(cpu.microcode for cpu in cpus),
        governor=_all(cpu.governor for cpu in cpus),
        boost=_all(cpu.boost for cpu in cpus),
        highest_mhz=_all(cpu.highest_mhz for cpu in cpus),
        smt=_all(cpu.smt for cpu in cpus),
        hypervisor=_all(cpu.hypervisor for cpu in cpus),
    )


def _all(values: Iterable[str | None]) -> str | None:
    """The value that all devices or nodes share, or all values; None if none has one."""
    return "; ".join(sorted({value for value in values if value is not None})) or None


def _number(value: float | None) -> str | None:
    return None if value is None else f"{value:g}"
