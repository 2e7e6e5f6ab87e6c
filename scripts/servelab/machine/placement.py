"""Where a run was placed on its machine, as its manifest records it: this differs between runs of one specification."""

from __future__ import annotations

from pydantic import Field

from servelab.core.json_file import JsonPart


class PlacedDevice(JsonPart):
    """A reserved device."""

    index: str = Field(description="Its number in the environment variable that selects devices.")
    key: str = Field(description="Its name for locks, the same for every process of the machine.")
    cpus: str | None = Field(description="CPUs close to it, such as `0-23,48-71`; null if unknown.")
    numa_node: int | None = Field(description="Its NUMA node; null if unknown.")


class Batch(JsonPart):
    """What a batch system gave."""

    system: str = Field(description="Batch system; `none` if there is none.")
    job_id: str | None = Field(description="Job, by the batch system's id.")
    node: str | None = Field(description="Node, by the batch system's name.")


class Placement(JsonPart):
    """The devices, and the CPUs beside them."""

    devices: list[PlacedDevice] = Field(description="The reserved devices.")
    ways: dict[str, str] = Field(description="Two devices, such as `0-1` → how they are connected.")
    server_cpus: list[int] | None = Field(description="CPUs that the server was pinned to; null for any.")
    client_cpus: list[int] | None = Field(description="CPUs reserved for load clients; null for any.")
    batch: Batch
