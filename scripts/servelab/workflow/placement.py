"""Where jobs run on a cluster, and what they ask it for. On one machine they ask for nothing."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from servelab.core.errors import ConfigError
from servelab.core.run_spec import HardwareSpec, RunSpec
from servelab.core.shell_variables import PASS_VARIABLES
from servelab.measure.job_minutes import runtime_min
from servelab.results.past_runs import PastTimes
from servelab.study.project import Project
from servelab.study.site import RESOURCES, Placement, Site, load_site
from servelab.workflow.imports import use_imported_runs
from servelab.workflow.needs import Needs, serving_threads, with_signature
from servelab.workflow.profile import file_of_site
from servelab.workflow.slurm_watch import SlurmWatch
from servelab.workflow.studies import Studies

HERE = ("collect_runs",)
NEED_NETWORK = ("download_dataset", "download_model", "build_environment")

Request = Mapping[str, str | int]


class Placements:
    """What measuring jobs ask for. `workflow` is Snakemake's, `config` the workflow's configuration.

    A site that lacks a place for the studies' hardware is a `ConfigError`.
    """

    def __init__(self, workflow: Any, config: Mapping[str, Any], studies: Studies, needs: Needs, runs: Path) -> None:
        self._workflow, self._needs = workflow, needs
        self._hardware = studies.hardware()
        self.site: Site | None = None
        self._cluster: Site | None = None
        """The site; None on one machine."""
        self.site_file = file_of_site(config.get("site"), config.get("site_file"))
        self.variables: dict[str, str] = {}
        """Environment variables that measuring jobs need."""
        if "site" in config:
            self.site = site = load_site(self.site_file, self._hardware)
            self._cluster = site if site.is_cluster else None
            if site.pass_variables:
                self.variables = {PASS_VARIABLES: ",".join(site.pass_variables)}
        # read again when there are more plans, as more was measured then
        use_imported = use_imported_runs(config)
        self._past_times = cache(lambda plans: PastTimes(runs, use_imported=use_imported))

    def watch_slurm(self, warn: Callable[[str], None]) -> None:
        """On Slurm: warns of what the site asks for and Slurm does not have, now and while jobs wait."""
        plugin = self._workflow.executor_plugin
        if self._cluster and plugin is not None and plugin.name == "slurm":
            SlurmWatch(self._cluster, self.site_file, self._needs.hardware, warn).start(self._hardware, Path())

    def check_nodes(self, studies: Mapping[str, Project]) -> None:
        """`ConfigError` if runs take several nodes and are no jobs of Slurm."""
        plugin = self._workflow.executor_plugin
        if (self._cluster and plugin is not None and plugin.name == "slurm") or not self._workflow.is_main_process:
            return
        for name, project in studies.items():
            if (nodes := project.study.hardware.nodes) > 1:
                raise ConfigError(
                    f"config/studies/{name}.yaml: hardware.nodes: only a job of Slurm is given {nodes} nodes; start "
                    "with `--profile slurm` (docs/cluster.md), or remove it"
                )

    def job(self, leader: str, attempt: int) -> Request:
        """What a job asks a cluster for, by its leader; nothing on one machine."""
        if self._workflow.local_exec:
            return {}
        hardware = self._needs.hardware(leader)
        about_s: Callable[[RunSpec], float | None] = _unknown
        if self._workflow.is_main_process and attempt == 1:  # within a job, its limit is known already
            about_s = self._past_times(self._needs.plans.count()).about_s
        visits = [[self._needs.plans.spec(run) for run in visit] for visit in self._needs.job(leader)]
        return self._of(hardware).request(hardware, runtime_min(visits, about_s), attempt)

    def threads(self, hardware: HardwareSpec) -> int:
        """CPU cores of a run: the site's on a cluster, otherwise the device's share of this machine's."""
        if self._workflow.local_exec:
            return serving_threads(hardware, self._workflow.cores)
        return self._of(hardware).cpus * hardware.count

    def accelerators(self) -> object:
        """Accelerators of a job: a number where all take as many, as a function is called for each of thousands."""
        counts = {hardware.count for hardware in self._hardware}
        if len(counts) == 1:
            return counts.pop()
        return with_signature(lambda wildcards: self._needs.hardware(wildcards.run_id).count)

    def resources(self, request: Callable[[Any, int], Request]) -> dict[str, object]:
        """Resources of a measuring rule, each from `request(wildcards, attempt)`.

        Snakemake calls each for each of thousands of runs, so there is none without a site, which a cluster needs.
        """

        def resource(name: str) -> object:
            nothing = 0 if name == "mem_mb" else None  # Snakemake wants a number of it
            return with_signature(lambda wildcards, attempt: request(wildcards, attempt).get(name, nothing))

        return {name: resource(name) for name in (RESOURCES if self._cluster else [])}

    def place(self) -> None:
        """Places every rule of this workflow, and none of another that uses it: to be called when all are defined.

        Measuring rules go where the site says; all others run here, or on the site's CPU nodes.
        """
        own = [rule for rule in self._workflow.rules if rule in self._workflow.modifier.rules]
        measuring = measuring_rule(self._workflow)
        cheap = [rule for rule in own if rule.name != measuring]
        if self._cluster is None or self._cluster.cheap_rules is None:
            self._workflow.localrules(*(rule.name for rule in cheap))
        else:
            self._workflow.localrules(*HERE, *NEED_NETWORK)
            for rule in cheap:
                rule.resources.update(self._cluster.cheap_rules.request())
        alike = self._asked_alike() if self._cluster else {}
        for rule in [rule for rule in own if rule.name == measuring]:
            for name, value in alike.items():
                # what `--set-resources` gave is the user's: it is a text, or not a function
                if rule.resources[name].is_evaluable() and rule.resources[name].raw is None:
                    rule.resources[name] = value
        self._set_temporary(own)

    def _asked_alike(self) -> dict[str, object]:
        """What all runs ask of the cluster whatever their hardware and attempt: values, not functions of each run."""
        requests = [
            self._of(hardware).request(hardware, runtime_min=number, attempt=number)
            for hardware in self._hardware
            for number in (1, 2)
        ]
        asked = {name: {request.get(name) for request in requests} for name in RESOURCES}
        return {name: values.pop() for name, values in asked.items() if len(values) == 1}

    def _set_temporary(self, rules: Iterable[Any]) -> None:
        """Sets where temporary files go: Snakemake would evaluate its own default for each of thousands of runs.

        Without a site all jobs run here; with one they may run where the folder is another.
        """
        for rule in rules:
            if getattr(rule.resources.get("tmpdir"), "raw", None) == "system_tmpdir":
                there = with_signature(lambda wildcards: tempfile.gettempdir())
                rule.resources["tmpdir"] = tempfile.gettempdir() if self._cluster is None else there

    def _of(self, hardware: HardwareSpec) -> Placement:
        if self._cluster is None:
            raise ConfigError(
                "config/config.yaml: site: missing, and a cluster needs it; `python scripts/install_profile.py <name>`"
                " makes a profile with the site of config/sites/<name>.yaml, or add `site: <name>`"
            )
        return self._cluster.placement(hardware)


def _unknown(spec: RunSpec) -> float | None:
    return None


def measuring_rule(workflow: Any) -> str:
    """The name of the rule `measure`, which a workflow that uses this one as a module may have changed."""
    return str(workflow.modifier.modify_rulename("measure"))
