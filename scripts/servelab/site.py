"""A site, as a user writes it: what its batch system calls things, kept apart from studies, which name none of it.

One file in `config/sites/`, chosen by `--config site=<name>`. Typed once; docs/cluster.md has its keys, and
config/schema/site.schema.json comes from here.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator

from servelab.config_file import read_config
from servelab.devices import DEVICES
from servelab.errors import ConfigError
from servelab.registry import nearest
from servelab.spec import HardwareSpec, Strict
from servelab.study import NAME

_OWN_KEYS = {
    "--partition": "partition",
    "-p": "partition",
    "--gres": "gres",
    "--gpus": "gres",
    "--constraint": "constraint",
    "-C": "constraint",
    "--account": "account",
    "-A": "account",
    "--qos": "qos",
    "-q": "qos",
    "--cpus-per-task": "cpus",
    "-c": "cpus",
    "--cpus-per-gpu": "cpus",
    "--mem": "memory_gb",
    "--mem-per-cpu": "memory_gb",
    "--time": "most_runtime_min",
    "-t": "most_runtime_min",
}
"""Options of sbatch that a key of `Placement` stands for."""
_OWN_OPTIONS = ("--job-name", "-J", "--output", "-o", "--error", "-e", "--comment", "--chdir", "-D", "--ntasks", "-n")
"""Options of sbatch that the workflow itself gives; its executor refuses some more."""


RESOURCES = (
    "slurm_partition",
    "gres",
    "constraint",
    "slurm_account",
    "qos",
    "cpus_per_task",
    "mem_mb",
    "runtime",
    "slurm_extra",
)
"""Names of Snakemake's resources that a run may ask for."""


class Placement(Strict):
    """Where runs on one kind of accelerator go, and what they get."""

    partition: str | None = Field(None, description="Partition. Default: the cluster's own default.")
    gres: str | None = Field(
        None,
        pattern=r"^[A-Za-z0-9_]+(:[A-Za-z0-9_.]+)?$",
        description="Generic resource without a count: `gpu:h100` becomes `gpu:h100:4` for a run on 4 accelerators. "
        "Leave it out where a run gets a whole node, as on a CPU.",
    )
    constraint: str | None = Field(None, description="Features that a node must have.")
    account: str | None = Field(None, description="Account that pays.")
    qos: str | None = Field(None, description="Quality of service.")
    cpus: int = Field(ge=1, description="CPU cores per accelerator; on a CPU, those of a run.")
    memory_gb: float = Field(
        gt=0,
        description="Host memory per accelerator in GB (10^9 bytes); on a CPU, that of a run. A run that the batch "
        "system ended gets once and twice as much more.",
    )
    most_runtime_min: int | None = Field(
        None, ge=1, description="Longest time that the partition gives a job, in minutes; no run asks for more."
    )
    extra: str = Field("", description="Further options of sbatch, such as `--exclusive`.")
    gpu_manufacturer: Literal["nvidia", "amd"] | None = Field(
        None,
        description="On Kubernetes, whose GPUs a pod asks for. Leave it out for a CPU, and for NPUs, which a pod gets "
        "from its namespace (cluster.md).",
    )
    machine_type: str | None = Field(
        None, description="On Kubernetes, the type of node (its label `node.kubernetes.io/instance-type`)."
    )

    @field_validator("extra")
    @classmethod
    def _no_option_of_its_own(cls, extra: str) -> str:
        for word in shlex.split(extra):
            option = word.split("=")[0] if word.startswith("--") else word[:2]
            if option in _OWN_KEYS:
                raise ValueError(f"`{option}` has a key of its own, `{_OWN_KEYS[option]}`")
            if option in _OWN_OPTIONS:
                raise ValueError(f"`{option}` is given by the workflow; leave it out")
        return extra

    def request(self, hardware: HardwareSpec, runtime_min: int, attempt: int) -> dict[str, str | int]:
        """What a run asks Slurm for, by the names of Snakemake's resources; `attempt` counts from 1.

        Memory grows with the attempt, as a run that was ended for want of it would end so again.
        """
        longest = runtime_min if self.most_runtime_min is None else min(runtime_min, self.most_runtime_min)
        request: dict[str, str | int | None] = {
            "slurm_partition": self.partition,
            "gres": f"{self.gres}:{hardware.count}" if self.gres else None,
            "constraint": self.constraint,
            "slurm_account": self.account,
            "qos": self.qos,
            "cpus_per_task": self.cpus * hardware.count,
            "mem_mb": round(self.memory_gb * 1000 * hardware.count * attempt),
            "runtime": longest,
            "slurm_extra": self.extra or None,
        }
        return {key: value for key, value in request.items() if value is not None}

    def pod_request(self, node: HardwareSpec) -> dict[str, str | int]:
        """What a pod with all accelerators of a node asks Kubernetes for, by the names of its executor's resources.

        `cpus` is not one of them: the executor goes by a rule's threads.
        """
        request: dict[str, str | int | None] = {
            "cpus": self.cpus * node.count,
            "mem_mb": round(self.memory_gb * 1000 * node.count),
            "gpu": node.count if self.gpu_manufacturer else None,
            "gpu_manufacturer": self.gpu_manufacturer,
            "machine_type": self.machine_type,
        }
        return {key: value for key, value in request.items() if value is not None}


class CheapRules(Strict):
    """Where rules go that need no accelerator."""

    partition: str | None = Field(None, description="Partition of CPU nodes. Default: the cluster's own default.")
    account: str | None = Field(None, description="Account that pays.")
    qos: str | None = Field(None, description="Quality of service.")
    memory_gb: float = Field(8, gt=0, description="Memory of such a job in GB (10^9 bytes).")
    runtime_min: int = Field(120, ge=1, description="Longest time of such a job in minutes.")

    def request(self) -> dict[str, str | int]:
        """What such a job asks Slurm for, by the names of Snakemake's resources."""
        request: dict[str, str | int | None] = {
            "slurm_partition": self.partition,
            "slurm_account": self.account,
            "qos": self.qos,
            "mem_mb": round(self.memory_gb * 1000),
            "runtime": self.runtime_min,
        }
        return {key: value for key, value in request.items() if value is not None}


class Site(Strict):
    """A cluster's own names and limits."""

    site: str = Field(pattern=NAME, description="Name; the file is `<site>.yaml`.")
    accelerators: dict[str, Placement] = Field(
        {}, description="By the name that a study gives its accelerator in `hardware.accelerator`."
    )
    devices: dict[str, Placement] = Field(
        {}, description="By the kind of device (`hardware.device`), for accelerators that are not named above."
    )
    cheap_rules: CheapRules | None = Field(
        None, description="Default: they run where `snakemake` runs. What needs the network always runs there."
    )

    def placement(self, hardware: HardwareSpec) -> Placement:
        """Where runs on that hardware go; `ConfigError` without file where the site does not say."""
        found = self.accelerators.get(hardware.accelerator) or self.devices.get(hardware.device)
        if found is None:
            named = [*self.accelerators, *self.devices]
            raise ConfigError(
                f"accelerators: no `{hardware.accelerator}` here and no kind `{hardware.device}` in `devices`; add one"
                f"{nearest(hardware.accelerator, named) if named else ''}"
            )
        return found


def load_site(file: Path, hardware: Sequence[HardwareSpec] = ()) -> Site:
    """The site in a file, with a place for each of the studies' hardware; `ConfigError` names file, key and fix."""
    site = read_config(file, Site)
    if site.site != file.stem:
        raise ConfigError(f"{file}: site: `{site.site}` must be the file's name, `{file.stem}`")
    for kind in site.devices:
        if kind not in DEVICES.names():
            raise ConfigError(f"{file}: devices: unknown device `{kind}`{nearest(kind, DEVICES.names())}")
    for each in hardware:
        try:
            site.placement(each)
        except ConfigError as error:
            raise ConfigError(f"{file}: {error}") from None
    return site
