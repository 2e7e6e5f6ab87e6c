"""Where jobs run on a cluster, and what they ask it for. On one machine they ask for nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from servelab.core.credentials import PASS_VARIABLES
from servelab.core.errors import ConfigError
from servelab.core.run_spec import HardwareSpec
from servelab.machine.devices import DEVICES
from servelab.measure.inputs import runtime_min
from servelab.results.past_runs import PastTimes
from servelab.study.project import Project
from servelab.study.site import RESOURCES, Placement, Site, load_site
from servelab.workflow.jobs import MeasuringJobs
from servelab.workflow.slurm_jobs import Request, Retries, name_jobs, watch_slurm
from servelab.workflow.studies import Studies, WorkflowConfig

SITES = Path("config/sites")
MEASURING_RULE = "measure"


def file_of_site(site: str | None, installed: str | None) -> Path:
    """The file of a site: the checkout's, or the one installed with the profile if the checkout has none."""
    own = SITES / f"{site}.yaml"
    return own if installed is None or own.exists() else Path(installed)


class Placements:
    """Resources that measuring jobs ask for. `workflow` is Snakemake's, `config` the workflow's configuration.

    A site that lacks a place for the studies' hardware is a `ConfigError`.
    """

    def __init__(
        self, workflow: Any, config: WorkflowConfig, studies: Studies, jobs: MeasuringJobs, runs: Path
    ) -> None:
        self._workflow, self._jobs = workflow, jobs
        self._hardware = studies.hardware()
        self._cluster: Site | None = None
        """The site; None on one machine."""
        self.site_file = file_of_site(config.site, config.site_file)
        self.variables: dict[str, str] = {}
        """Environment variables that measuring jobs need."""
        if config.site:
            site = load_site(self.site_file, self._hardware)
            self._cluster = site if site.is_cluster else None
            if site.pass_variables:
                self.variables = {PASS_VARIABLES: ",".join(site.pass_variables)}
        # read again when there are more plans, as more was measured then
        self._retries = Retries(Path())
        self._past_times = cache(lambda plans: PastTimes(runs))

    @property
    def _is_on_slurm(self) -> bool:
        plugin = self._workflow.executor_plugin
        return plugin is not None and plugin.name == "slurm"

    def watch_slurm(self, warn: Callable[[str], None]) -> None:
        """On Slurm: names jobs, warns of what the site asks for and Slurm does not have, now and while jobs wait."""
        if self._cluster and self._is_on_slurm:
            name_jobs(sys.modules[self._workflow.executor_plugin.executor.__module__], self._jobs.title)
            watch_slurm(self._cluster, self.site_file, self._hardware, Path(), warn)

    def check_nodes(self, studies: Mapping[str, Project]) -> None:
        """`ConfigError` if runs take several nodes and are no jobs of Slurm."""
        if (self._cluster and self._is_on_slurm) or not self._workflow.is_main_process:
            return
        for name, project in studies.items():
            if (nodes := project.study.hardware.nodes) > 1:
                raise ConfigError(
                    f"config/studies/{name}.yaml: hardware.nodes: only a job of Slurm is given {nodes} nodes; start "
                    "with `--profile slurm` (docs/cluster.md), or remove it"
                )

    def job(self, last: str, attempt: int) -> Request:
        """Resources that a job asks a cluster for, by the run that names it; none on one machine."""
        if self._workflow.local_exec:
            return {}
        if known := self._retries.known(last, attempt):
            return known
        hardware = self._jobs.hardware(last)
        times = []
        if self._workflow.is_main_process and attempt == 1:  # within a job, its limit is known already
            times.append(self._past_times(len(self._jobs.plans.titles)).about_s)
        visits = [[self._jobs.plans.spec(run) for run in visit] for visit in self._jobs.visits(last)]
        return self._retries.request(last, attempt, self._of(hardware).request(hardware, runtime_min(visits, *times)))

    def threads(self, hardware: HardwareSpec) -> int:
        """CPU cores of a run: the site's on a cluster, otherwise the device's share of this machine's."""
        if self._workflow.local_exec:
            return DEVICES.get(hardware.device).threads(self._workflow.cores, hardware.count)
        return self._of(hardware).cpus * hardware.count

    def accelerators(self) -> object:
        """Accelerators of a job: a number where all take as many."""
        counts = {hardware.count for hardware in self._hardware}
        return counts.pop() if len(counts) == 1 else lambda wildcards: self._jobs.hardware(wildcards.run_id).count

    def resources(self, request: Callable[[Any, int], Request]) -> dict[str, object]:
        """Resources of a measuring rule, each from `request(wildcards, attempt)`; none without a cluster's site."""

        def resource(name: str) -> object:
            nothing = 0 if name == "mem_mb" else None  # Snakemake wants a number of it
            return lambda wildcards, attempt: request(wildcards, attempt).get(name, nothing)

        return {name: resource(name) for name in (RESOURCES if self._cluster else [])}

    def place(self, environment: str) -> None:
        """Places every rule: to be called when all are defined.

        Measuring rules go where the site says; all others run here. `environment` is the file for Snakemake's
        deployment by conda.
        """
        for rule in self._workflow.rules:
            rule.conda_env = environment
        self._workflow.localrules(*(rule.name for rule in self._workflow.rules if rule.name != MEASURING_RULE))

    def _of(self, hardware: HardwareSpec) -> Placement:
        if self._cluster is None:
            raise ConfigError(
                "config/config.yaml: site: missing, and a cluster needs it; `python scripts/install_profile.py <name>`"
                " makes a profile with the site of config/sites/<name>.yaml, or add `site: <name>`"
            )
        return self._cluster.placement(hardware)
