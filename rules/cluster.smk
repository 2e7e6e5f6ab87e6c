"""Where jobs run on a cluster: what measures goes where the site says, all else stays here or goes to CPU nodes.

Included last, for it places every rule. On one machine it says no more than where temporary files go.
"""

import tempfile

from servelab.past_runs import PastTimes
from servelab.run_time import pair_runtime_min, runtime_min
from servelab.site import load_site
from servelab.slurm_jobs import cancel_jobs

MEASURING = ("measure", "measure_pair")
HERE = ("collect_runs",)
NEED_NETWORK = ("download_dataset", "download_model", "build_environment")


def read_site():
    """The site that the configuration names, if it names one; it has a place for every study."""
    if "site" not in config:
        return None
    return load_site(Path(f"config/sites/{config['site']}.yaml"), hardware_of_runs())


try:
    SITE = read_site()
except ServelabError as error:
    raise WorkflowError(str(error))


def placement(hardware):
    """Where the site puts runs on that hardware."""
    if SITE is None:
        raise WorkflowError(
            "config/config.yaml: site: missing, and a cluster needs it; add `site: <name>` for config/sites/<name>.yaml,"
            " or give `--config site=<name>`"
        )
    return SITE.placement(hardware)


@cache
def past_times(plans):
    """What past runs took; read anew when there are more plans, for then more was measured."""
    return PastTimes(RESULTS / "runs")


def run_request(wildcards, attempt):
    """What a run asks a cluster for; nothing on one machine."""
    if workflow.local_exec:
        return {}
    spec, about_s = spec_of(wildcards.run_id), None
    if (
        workflow.is_main_process and attempt == 1
    ):  # within a job, its limit is known already
        about_s = past_times(len(spec_of.read)).about_s(spec)
    return placement(spec.hardware).request(
        spec.hardware, runtime_min(spec, about_s), attempt
    )


def pair_request(wildcards, attempt):
    """What a pair asks a cluster for; nothing on one machine."""
    if workflow.local_exec:
        return {}
    pair = pair_of(wildcards.pair_id)
    hardware = max((pair.a.hardware, pair.b.hardware), key=lambda side: side.count)
    return placement(hardware).request(
        hardware, pair_runtime_min((pair.a, pair.b), pair.cycles), attempt
    )


def run_threads(hardware):
    """CPU cores of a run: the site's on a cluster, the device's share of this machine's otherwise."""
    if workflow.local_exec:
        return serving_threads(hardware)
    return placement(hardware).cpus * hardware.count


ELSEWHERE = [each for each in workflow.rules if each.name not in MEASURING]
if SITE is None or SITE.cheap_rules is None:
    workflow.localrules(*(each.name for each in ELSEWHERE))
else:
    workflow.localrules(*HERE, *NEED_NETWORK)
    for each in ELSEWHERE:
        for name, value in SITE.cheap_rules.request().items():
            each.resources[name] = value


def asked_alike():
    """What all runs ask of the cluster whatever their hardware and attempt: Snakemake need not ask each of thousands."""
    requests = [
        placement(hardware).request(hardware, runtime_min=number, attempt=number)
        for hardware in hardware_of_runs()
        for number in (1, 2)
    ]
    asked = {name: {request.get(name) for request in requests} for name in RESOURCES}
    return {name: values.pop() for name, values in asked.items() if len(values) == 1}


if SITE is not None:
    for each in [each for each in workflow.rules if each.name in MEASURING]:
        for name, value in asked_alike().items():
            # what `--set-resources` gave is the user's, and has a text or no function
            if each.resources[name].is_evaluable() and each.resources[name].raw is None:
                each.resources[name] = value


# Snakemake would evaluate this default of its own as an expression for each of thousands of runs. Without a site no job
# runs elsewhere, where it may have another value.
for each in workflow.rules:
    if getattr(each.resources.get("tmpdir"), "raw", None) == "system_tmpdir":
        each.resources["tmpdir"] = (
            tempfile.gettempdir()
            if SITE is None
            else with_signature(lambda wildcards: tempfile.gettempdir())
        )


def cancel_left_jobs():
    """A workflow that was killed leaves its jobs in the queue: they would measure what is submitted again now.

    The folder's lock is held when a workflow starts, so no other workflow of it lives.
    """
    if Path(".snakemake/slurm_logs").exists():
        try:
            for job in cancel_jobs(Path()):
                logger.warning(
                    f"cancelled job {job.id} of an earlier workflow: {job.comment}"
                )
        except ServelabError as error:
            raise WorkflowError(str(error))


onstart:
    if set(workflow.dag_settings.targets) != {"preflight"}:  # which makes no run
        coordinate()
        cancel_left_jobs()
        say_troubles()


onerror:
    if set(workflow.dag_settings.targets) != {"preflight"}:
        show_what_is_there()
