"""The place of a measurement: what makes runs of one specification unequal, although nobody asked for a difference.

Two places are equal if these facts are. They are what may change a speed and is not in a run's specification: device,
driver, the settings that limit clocks and memory, and the host. Not among them are:

- The host's name, the batch system's job, the device's number: equal machines are one place.
- How many devices a run used, and CPUs that a batch system gives with each: the candidate chooses them.
- Persistence mode: a running server keeps the driver loaded, so it only changes how long a start takes.
- Firmware: boards of one delivery differ in it, and an NPU's is upgraded with the driver. The manifest has it.
- The size of the host's memory, which equal machines report a little differently.
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from servelab.core.files import JsonPart
from servelab.core.identity import content_id

_DIGEST_LENGTH = 12
_BRIEF = ("accelerator", "driver", "runtime", "kernel")


class PlaceFacts(JsonPart):
    """Where a run was measured; nulls are unknown. If its devices differ in a fact, all values are in it."""

    accelerator: str | None = Field(None, description="The accelerator as the vendor's tool names it.")
    driver: str | None = Field(None, description="Version of its driver.")
    runtime: str | None = Field(None, description="Newest CUDA that the driver supports, or the host's CANN.")
    mig_mode: str | None = Field(None, description="`Enabled` if a GPU is split into instances.")
    ecc_mode: str | None = Field(None, description="`Enabled` if its memory corrects errors.")
    power_limit: str | None = Field(None, description="Power limit that is set, in W.")
    core_clock: str | None = Field(None, description="Application clock of a GPU, rated clock of an NPU, in MHz.")
    memory_clock: str | None = Field(None, description="Application clock of a GPU's memory, in MHz.")
    cpu: str | None = Field(None, description="Model of the host's CPU.")
    cpus: str | None = Field(None, description="CPUs of the host.")
    cpus_usable: str | None = Field(None, description="CPUs that the run could use, if they are what served.")
    kernel: str | None = Field(None, description="Release of the host's kernel.")
    microcode: str | None = Field(None, description="Revision of the CPU's microcode.")
    governor: str | None = Field(None, description="Governor of the CPU's clocks.")
    boost: str | None = Field(None, description="`on` or `off`: whether clocks above the base clock are allowed.")
    highest_mhz: str | None = Field(None, description="Highest clock of the CPU that is allowed, in MHz.")
    smt: str | None = Field(None, description="`on` or `off`: whether cores have several hardware threads.")
    hypervisor: str | None = Field(None, description="Vendor of the host's hypervisor.")

    @property
    def facts(self) -> dict[str, str]:
        """The facts that are known."""
        return self.model_dump(mode="json", exclude_none=True)

    @property
    def digest(self) -> str:
        """The name of the place in tables: equal for equal places."""
        return place_digest(self.facts)


def place_digest(facts: Mapping[str, str]) -> str:
    """The name of a place with these facts."""
    return content_id(dict(facts))[:_DIGEST_LENGTH]


def place_brief(facts: Mapping[str, str]) -> str:
    """What most often changes about a place: accelerator, driver, runtime and kernel."""
    return ", ".join(fact_text(name, facts[name]) for name in _BRIEF if name in facts)


def fact_text(name: str, value: str) -> str:
    """`driver 570.86.10`; an accelerator's name says what it is."""
    return value if name == "accelerator" else f"{name.replace('_', ' ')} {value}"


class DeviceSettings(JsonPart):
    """How an accelerator is set up; nulls are what the vendor's tool does not report."""

    runtime: str | None = Field(None, description="Newest CUDA that the driver supports, or the host's CANN.")
    firmware: str | None = Field(None, description="Version of its firmware; of a GPU, the VBIOS.")
    mig_mode: str | None = Field(None, description="`Enabled` if a GPU is split into instances.")
    ecc_mode: str | None = Field(None, description="`Enabled` if its memory corrects errors.")
    persistence_mode: str | None = Field(None, description="`Enabled` if the driver stays loaded without a process.")
    power_limit_w: float | None = Field(None, description="Power limit that is set.")
    clock_core_mhz: float | None = Field(None, description="Application clock of a GPU; rated clock of an NPU.")
    clock_memory_mhz: float | None = Field(None, description="Application clock of a GPU's memory.")


def value_or_none(text: str | None) -> str | None:
    """A text of a vendor's tool; None for its ways to say that there is none."""
    text = (text or "").strip()
    is_none = not text or text.strip("[]").casefold() in ("n/a", "na", "-", "none", "unknown", "not supported")
    return None if is_none or "deprecated" in text or "Insufficient" in text else text


def number_or_none(text: str | None) -> float | None:
    """The number at the beginning of a text, such as `700.00 W`; None if it does not begin with one."""
    first = (value_or_none(text) or "").split(" ")[0]
    return float(first) if first.replace(".", "", 1).isdecimal() and first.isascii() else None
