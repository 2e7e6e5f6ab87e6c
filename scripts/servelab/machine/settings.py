"""How a device is set up, as its vendor's tool reports it. Nulls are what the tool does not report."""

from __future__ import annotations

from pydantic import Field

from servelab.core.json_file import JsonPart


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
