"""A site as a user writes it: the names of its batch system, so that studies need none of them.

One file in `config/sites/`, installed with `python scripts/install_profile.py <name>`. docs/cluster.md lists its keys;
config/schema/site.schema.json is generated from here.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import Field

from servelab.core.errors import ConfigError
from servelab.core.registry import nearest
from servelab.core.run_spec import HardwareSpec, Strict, VariableName, Word
from servelab.core.yaml_file import read_config
from servelab.machine.devices import DEVICES
from servelab.study.workload_loads import NAME

RESOURCES = (
    *("slurm_partition", "gres", "constraint", "slurm_account", "qos", "cpus_per_task", "mem_mb", "runtime", "nodes"),
    *("tasks", "slurm_extra"),
)
"""Names of Snakemake's resources that a run may request."""


class Placement(Strict):
    """Where runs on one kind of accelerator are submitted, and what they request."""

    partition: Word | None = Field(None, description="Partition. Default: the cluster's own default.")
    gres: str | None = Field(
        None,
        pattern=r"^[A-Za-z0-9_]+(:[A-Za-z0-9_.]+)?$",
        description="Generic resource without a count: `gpu:h100` becomes `gpu:h100:4` for a run on 4 accelerators. "
        "Leave it out if a run gets a whole node, as on a CPU.",
    )
    constraint: Word | None = Field(None, description="Features that a node must have.")
    account: Word | None = Field(None, description="Account to charge.")
    qos: Word | None = Field(None, description="Quality of service.")
    cpus: int = Field(ge=1, description="CPU cores per accelerator; on a CPU, per run.")
    memory_gb: float | None = Field(
        None,
        gt=0,
        description="Host memory per accelerator in GB (10^9 bytes); on a CPU, per run. A job that ran out of it is "
        "tried with more, if the cluster has more. Default: what the cluster gives by itself.",
    )
    most_runtime_min: int | None = Field(
        None, ge=1, description="The partition's longest time for a job, in minutes; no run requests more."
    )
    extra: str = Field("", description="Further options of sbatch, such as `--exclusive`; none that a key sets.")

    def request(self, hardware: HardwareSpec, runtime_min: int) -> dict[str, str | int]:
        """The request of a run to Slurm, by the names of Snakemake's resources.

        Slurm counts gres, CPUs and memory for each node.
        """
        longest = runtime_min if self.most_runtime_min is None else min(runtime_min, self.most_runtime_min)
        several = hardware.nodes > 1
        request = {
            "slurm_partition": self.partition,
            "gres": f"{self.gres}:{hardware.per_node}" if self.gres else None,
            "constraint": self.constraint,
            "slurm_account": self.account,
            "qos": self.qos,
            "cpus_per_task": self.cpus * hardware.per_node,
            "mem_mb": round(self.memory_gb * 1000 * hardware.per_node) if self.memory_gb else None,
            "runtime": longest,
            "nodes": hardware.nodes if several else None,
            # the executor gives GPU jobs no number of tasks, and takes one for that of each GPU
            "tasks": hardware.nodes if several and "gpu" not in (self.gres or "") else None,
            "slurm_extra": self.extra or None,
        }
        return {key: value for key, value in request.items() if value is not None}  # the cluster decides the others


class Site(Strict):
    """A cluster's names and limits."""

    site: str = Field(pattern=NAME, description="Name; the file is `<site>.yaml`.")
    accelerators: dict[str, Placement] = Field(
        {}, description="Placements by accelerator, as studies name it in `hardware.accelerator`."
    )
    devices: dict[str, Placement] = Field(
        {}, description="Placements by kind of device (`hardware.device`), for accelerators that are not named above."
    )
    pass_variables: list[VariableName] = Field(
        [],
        description="Variables of the shell that every server and load client gets, in containers too, such as a "
        "module's `LD_LIBRARY_PATH`. They must be set wherever runs are measured. Each run's manifest has the values. "
        "What changes the speed belongs in a study's `environment_variables`, which are part of a run's identity.",
    )

    @property
    def is_cluster(self) -> bool:
        """Whether runs are submitted. A site that only names variables is one machine."""
        return bool(self.accelerators or self.devices or not self.pass_variables)

    def placement(self, hardware: HardwareSpec) -> Placement:
        """The placement of runs on this hardware; `ConfigError` (without the file's name) if the site has none."""
        return self.keyed_placement(hardware)[1]

    def keyed_placement(self, hardware: HardwareSpec) -> tuple[str, Placement]:
        """The key of that placement in the file, and the placement."""
        key, found = f"accelerators.{hardware.accelerator}", self.accelerators.get(hardware.accelerator)
        if found is None:
            key, found = f"devices.{hardware.device}", self.devices.get(hardware.device)
        if found is None:
            named = [*self.accelerators, *self.devices]
            raise ConfigError(
                f"accelerators: has no `{hardware.accelerator}`, and `devices` has no `{hardware.device}`; add one"
                f"{nearest(hardware.accelerator, named) if named else ''}"
            )
        return key, found


def load_site(file: Path, hardware: Sequence[HardwareSpec] = ()) -> Site:
    """The site in a file, checked for a placement of each `hardware`; a `ConfigError` names file, key and fix."""
    site = read_config(file, Site)
    if site.site != file.stem:
        raise ConfigError(f"{file}: site: `{site.site}` must be the file's name, `{file.stem}`")
    if not site.is_cluster:
        return site
    for kind in site.devices:
        if kind not in DEVICES.names():
            raise ConfigError(f"{file}: devices: unknown device `{kind}`{nearest(kind, DEVICES.names())}")
    for each in hardware:
        try:
            site.placement(each)
        except ConfigError as error:
            raise ConfigError(f"{file}: {error}") from None
    return site
