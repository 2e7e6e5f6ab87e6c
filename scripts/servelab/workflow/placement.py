"""Where jobs run on a cluster, and what they ask it for. On one machine they ask for nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from servelab.core.credentials import PASS_VARIABLES
from servelab.core.errors import ConfigError, ServelabError
from servelab.core.files import write_text
from servelab.core.registry import nearest
from servelab.core.run_spec import HardwareSpec, RunSpec
from servelab.core.ssh_signature import check_key
from servelab.machine.allocations.slurm import is_final, keys_of, refusal, unsatisfied
from servelab.measure.inputs import runtime_min
from servelab.results.past_runs import PastTimes
from servelab.study.project import Project
from servelab.study.site import RESOURCES, Placement, Site, load_site
from servelab.workflow.jobs import MeasuringJobs
from servelab.workflow.needs import serving_threads
from servelab.workflow.retries import Request, Retries
from servelab.workflow.studies import Studies, WorkflowConfig

FIRST_S, EVERY_S = 30.0, 60.0
"""Time until the queue is looked at for the first time, and between looks: a request to Slurm each."""
_TRIAL_MIN = 10


class SlurmWatch:
    """Looks at what a site asks of Slurm. It cancels nothing: to wait or to mend the site is the user's choice."""

    def __init__(self, site: Site, file: Path, warn: Callable[[str], None]) -> None:
        """`warn` takes a line."""
        self._site, self._file, self._warn = site, file, warn
        self._said: set[str] = set()

    def start(self, hardware: list[HardwareSpec], folder: Path) -> None:
        """Warns of requests that Slurm refuses now, and from now on of the folder's jobs that it cannot start.

        `ConfigError` for requests that it will always refuse: their jobs would fail, and be tried again in vain.
        """
        refused = list(self.refused(hardware))
        if final := [line for line, reason in refused if is_final(reason)]:
            raise ConfigError("\n".join(f"{line}; change it, and start again" for line in final))
        for line, _ in refused:
            self._warn(line)
        threading.Thread(target=self._look_again_and_again, args=(folder,), daemon=True).start()

    def refused(self, hardware: list[HardwareSpec]) -> Iterator[tuple[str, str]]:
        """A line and Slurm's reason for each request of the site that it refuses, for this hardware."""
        for each in hardware:
            key, placement = self._site.keyed_placement(each)
            if reason := refusal(placement.request(each, _TRIAL_MIN)):
                what = f"a run on {each.count} × {each.accelerator}"
                yield f"{self._place(key, reason)}: Slurm refuses {what}: {reason}", reason

    def _look_again_and_again(self, folder: Path) -> None:
        pause = threading.Event()
        pause.wait(FIRST_S)
        while True:
            try:
                for job in unsatisfied(folder):
                    if job.reason not in self._said:
                        self._said.add(job.reason)
                        self._warn(
                            f"Slurm does not start job {job.id}: {job.reason}. It stays queued; Ctrl-C cancels all jobs"
                        )
            except ServelabError:  # Slurm does not answer now
                pass
            pause.wait(EVERY_S)

    def _place(self, key: str, reason: str) -> str:
        keys = keys_of(reason)
        return f"{self._file}: {key}{'.' if keys else ''}{' or '.join(keys)}"


SITES = Path("config/sites")
_PROFILE = Path("profiles/slurm/config.yaml")
_CONFIG = "servelab.yaml"
_MARK = "# A profile of Servelab"


def install_profile(site: str, profiles: Path, name: str, root: Path) -> Path:
    """Writes profile `name` for a site of the checkout `root` below the folder `profiles`; the file that it wrote.

    A former profile of Servelab is replaced; `ConfigError` if the site is wrong or the name is another profile's.
    """
    file = root / SITES / f"{site}.yaml"
    if not file.exists():
        known = sorted(path.stem for path in (root / SITES).glob("*.yaml"))
        raise ConfigError(f"{file}: no such site{nearest(site, known)}; docs/cluster.md says how to write one")
    if not load_site(file).is_cluster:
        raise ConfigError(f"{file}: names no partitions; add `accelerators` or `devices` (docs/cluster.md)")
    folder = profiles.absolute() / name
    profile = folder / "config.yaml"
    others = [path for path in folder.glob("*.yaml") if not path.read_text(encoding="utf-8").startswith(_MARK)]
    if others:
        fix = (
            f"give another name (`--name servelab-{name}`, for `snakemake --profile servelab-{name}`), or move it away"
        )
        raise ConfigError(f"{others[0]}: another profile has the name `{name}`; {fix}")
    mark = f"{_MARK}, written by `python scripts/install_profile.py {site}`, which writes it again.\n"
    # A file of configuration, as `--config` on the command line would replace all of a profile's `config`.
    settings = (root / _PROFILE).read_text(encoding="utf-8") + f"# The site.\nconfigfile: {folder / _CONFIG}\n"
    copy = folder / "sites" / file.name
    copy.parent.mkdir(parents=True, exist_ok=True)
    write_text(copy, f"{mark}# For checkouts without {SITES / file.name}.\n{file.read_text(encoding='utf-8')}")
    write_text(folder / _CONFIG, f"{mark}site: {site}\nsite_file: {copy}\n")
    write_text(profile, mark + settings)
    return profile


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
        self.site: Site | None = None
        self._cluster: Site | None = None
        """The site; None on one machine."""
        self.site_file = file_of_site(config.site, config.site_file)
        self.variables: dict[str, str] = {}
        """Environment variables that measuring jobs need."""
        if config.site:
            self.site = site = load_site(self.site_file, self._hardware)
            self._cluster = site if site.is_cluster else None
            if site.pass_variables:
                self.variables = {PASS_VARIABLES: ",".join(site.pass_variables)}
        self.sign = config.sign or (self.site.sign if self.site else None)
        """The key that signs; None if nothing is signed."""
        self.sign_json = self.sign.model_dump_json() if self.sign else ""
        # read again when there are more plans, as more was measured then
        self._retries = Retries(Path())
        self._past_times = cache(lambda plans: PastTimes(runs, use_imported=config.use_imported_runs))

    def watch_slurm(self, warn: Callable[[str], None]) -> None:
        """On Slurm: warns of what the site asks for and Slurm does not have, now and while jobs wait."""
        plugin = self._workflow.executor_plugin
        if self._cluster and plugin is not None and plugin.name == "slurm":
            SlurmWatch(self._cluster, self.site_file, warn).start(self._hardware, Path())

    def check_key(self) -> None:
        """`ConfigError` if the key cannot sign; jobs that do not run here have no agent."""
        if self.sign:
            check_key(self.sign, with_agent=self._workflow.local_exec)

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

    def job(self, last: str, attempt: int) -> Request:
        """Resources that a job asks a cluster for, by the run that names it; none on one machine."""
        if self._workflow.local_exec:
            return {}
        if known := self._retries.known(last, attempt):
            return known
        hardware = self._jobs.hardware(last)
        about_s: Callable[[RunSpec], float | None] = _unknown
        if self._workflow.is_main_process and attempt == 1:  # within a job, its limit is known already
            about_s = self._past_times(self._jobs.plans.count()).about_s
        visits = [[self._jobs.plans.spec(run) for run in visit] for visit in self._jobs.visits(last)]
        return self._retries.request(last, attempt, self._of(hardware).request(hardware, runtime_min(visits, about_s)))

    def threads(self, hardware: HardwareSpec) -> int:
        """CPU cores of a run: the site's on a cluster, otherwise the device's share of this machine's."""
        if self._workflow.local_exec:
            return serving_threads(hardware, self._workflow.cores)
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
        """Places every rule of this workflow, and none of another that uses it: to be called when all are defined.

        Measuring rules go where the site says; all others run here. `environment` is the file for Snakemake's
        deployment by conda.
        """
        own = [rule for rule in self._workflow.rules if rule in self._workflow.modifier.rules]
        for rule in own:
            rule.conda_env = environment
        measuring = measuring_rule(self._workflow)
        self._workflow.localrules(*(rule.name for rule in own if rule.name != measuring))

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
