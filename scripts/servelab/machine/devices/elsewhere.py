"""Accelerators of another machine: those of a server that already runs there. They are never looked at or reserved."""

from __future__ import annotations

from servelab.machine.devices import DEVICES, Device, DeviceKind

_MOST = 64
"""Accelerators that one server may have."""


class RemoteDevices(DeviceKind):
    """As many accelerators as a study says, with the name that it gives them."""

    name = "elsewhere"

    def find(self) -> list[Device]:
        """See `DeviceKind.find`; what is there is not known."""
        names = range(_MOST)
        return [Device(index=str(n), key=f"elsewhere-{n}", name="elsewhere", is_seen=False) for n in names]


DEVICES.register("elsewhere", RemoteDevices())
