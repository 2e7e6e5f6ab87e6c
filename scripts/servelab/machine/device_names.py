"""Whether a device is the accelerator that a study names: vendors' tools and data sheets use different names.

Each word of the study's name must be a word of the name as found, or one that `KNOWN` or the kind of device adds to it.
So `NVIDIA H100` and `NVIDIA H100 SXM` are found as `NVIDIA H100 80GB HBM3`, and `cpu` is every CPU. What this does not
know is stated in the study (`hardware.found_as`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from servelab.core.errors import ConfigError
from servelab.machine.devices import Device, DeviceKind

KNOWN: dict[str, str] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_bytes())
"""Name as the vendor's tool prints it, as a regular expression → words that data sheets add."""

OTHER_PRODUCT = frozenset({"ti", "super", "d", "laptop", "mobile", "max", "ada", "3e", "mig"})
"""Words that make another product: if one is found, it must be in the study's name."""
_PART = frozenset({"mig"})
_PROFILE = re.compile(r"\d+g\.\d+gb.*")
"""Profile of a MIG instance, such as `3g.40gb`: another profile is another accelerator."""


@dataclass(frozen=True)
class WantedDevices:
    """The accelerators that runs are to be measured on."""

    kind: DeviceKind
    accelerators: Sequence[str]
    """Names in the runs' specifications; a device must fit all of them."""
    found_as: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Accelerator → further names under which it may be found, as studies state them."""

    def among(self, devices: Sequence[Device], giver: str) -> list[Device]:
        """Those of the devices that fit; `ConfigError` if there are devices and none fits."""
        kept = [device for device in devices if not self._unfit(device)]
        if devices and not kept:
            self.check(devices, giver)
        return kept

    def check(self, devices: Sequence[Device], giver: str) -> None:
        """`ConfigError` says what was found instead, and what to do, unless all devices fit.

        `giver` has the devices, such as `this machine`.
        """
        for device in devices:
            if name := self._unfit(device):
                raise ConfigError(
                    f"hardware.accelerator: runs are of `{name}`, but {giver} has `{found_name(device)}`, so "
                    "nothing is measured; run where that accelerator is, or correct the name; if both are the same, "
                    f"add `found_as: [{json.dumps(found_name(device), ensure_ascii=False)}]` to `hardware`"
                )

    def _unfit(self, device: Device) -> str | None:
        """The accelerator's name that does not fit the device; None if all do."""
        found = found_name(device)
        for name in self.accelerators if device.is_seen else ():
            same = found.casefold() in (alias.casefold() for alias in self.found_as.get(name, ()))
            if not same and not fits(name, found, self.kind.words):
                return name
        return None


def found_name(device: Device) -> str:
    """A device's name as found; `MIG` is added to a GPU in MIG mode, so that it is not taken whole."""
    is_split = device.settings is not None and device.settings.mig_mode == "Enabled" and device.within is None
    return f"{device.name} MIG" if is_split else device.name


def fits(name: str, found: str, words_of_kind: Sequence[str] = ()) -> bool:
    """Whether a study's name for an accelerator fits a name as found."""
    named, there = _words(name), _words(found)
    others = next((words for pattern, words in KNOWN.items() if re.fullmatch(pattern, found, re.IGNORECASE)), "")
    implied = there | _words(others) | set(words_of_kind)
    is_general = named <= set(words_of_kind)  # `cpu` is every CPU, whatever its name says besides
    distinct = there & (_PART if is_general else OTHER_PRODUCT) | {word for word in there if _PROFILE.fullmatch(word)}
    return bool(named) and named <= implied and distinct <= named


def _words(name: str) -> set[str]:
    """`Intel(R) Xeon(R) Platinum 8480+` is intel, xeon, platinum, 8480+; `Ascend910B4` is ascend, 910b4."""
    text = re.sub(r"\((r|tm|c)\)", " ", name.casefold())
    text = re.sub(r"\bascend(?=\d)", "ascend ", text)
    text = re.sub(r"(\d+) ?gi?b\b", r"\1gb", text)
    return {word for word in re.split(r"[\s,/()_-]+", text) if word}
