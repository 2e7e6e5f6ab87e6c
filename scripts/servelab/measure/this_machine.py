"""What a manifest says of a machine: the machine that this process is on, and the devices reserved there."""

from __future__ import annotations

import os
import platform

import psutil

from servelab.core.errors import Outage
from servelab.machine.cpu_facts import cpu_model, cpu_settings
from servelab.machine.lease import Lease
from servelab.measure.run_files import Machine, ManifestDevice


def devices_of(leased: Lease) -> list[ManifestDevice]:
    """The reserved devices, as a manifest has them."""
    return [
        ManifestDevice(index=d.index, name=d.name, driver=d.driver, memory_bytes=d.memory_bytes, settings=d.settings)
        for d in leased.devices
    ]


def this_machine() -> Machine:
    """The machine that this process is on."""
    return Machine(
        cpu=cpu_model(),
        cpu_settings=cpu_settings(),
        cpus=psutil.cpu_count(logical=True),
        cpus_usable=len(os.sched_getaffinity(0)),
        memory_bytes=psutil.virtual_memory().total,
        kernel=platform.release(),
        architecture=platform.machine(),
        python=platform.python_version(),
    )


def interface_of(address: str) -> str:
    """The network interface of this machine that has an address; `Outage` if none has it."""
    for name, addresses in psutil.net_if_addrs().items():
        if any(each.address == address for each in addresses):
            return name
    raise Outage(f"no network interface here has the address {address}, by which the cluster knows this node")
