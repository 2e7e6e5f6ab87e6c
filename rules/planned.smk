"""Reads the plans on disk: the runs and pairs that they ask for, and what each is made from. Makes nothing."""

import inspect
import json
import os
import shlex
import sys
import time
from functools import cache
from pathlib import Path

from pydantic_core import to_json
from snakemake.exceptions import IncompleteCheckpointException

from servelab.deciding_pair import PairSpec
from servelab.devices import DEVICES
from servelab.plan import accelerator_counts
from servelab.site import RESOURCES
from servelab.spec import HardwareSpec, RunSpec, Settings


class PlanIndex:
    """What the plans on disk ask for, by its id; each plan is read once.

    `entries` gives the ids and contents of one plan, as JSON; `kind` says what these are.
    """

    def __init__(self, name, kind, entries):
        self.name, self.kind, self.entries = name, kind, entries
        self.found = {}
        self.read = {}
        self.validated = {}

    def __call__(self, key):
        if key not in self.validated:
            self.validated[key] = self.kind.model_validate_json(self.text(key))
        return self.validated[key]

    def text(self, key):
        """Its JSON; reads the plans until one asks for it."""
        # A job on another node may see a plan a while after the node that wrote it.
        patience_s = (
            0 if workflow.is_main_process else workflow.execution_settings.latency_wait
        )
        until = time.monotonic() + patience_s
        while key not in self.found:
            for plan in RESULTS.glob(f"studies/*/stages/*/{self.name}"):
                self.ids(plan)
            if key not in self.found:
                if time.monotonic() >= until:
                    raise WorkflowError(
                        f"no {self.name} under {RESULTS}/studies asks for {key}"
                    )
                time.sleep(1)
        return self.found[key]

    def ids(self, plan):
        """What one plan asks for, in order."""
        written = plan.stat().st_mtime_ns
        if plan not in self.read or self.read[plan][0] != written:
            entries = self.entries(json.loads(plan.read_bytes()))
            self.read[plan] = written, list(entries)
            self.found.update(entries)
        return self.read[plan][1]


# Thousands of runs differ by their server's settings alone: what else they are is one text for them all, by their ids.
WITHOUT_SETTINGS = {}
NO_SETTINGS = {name: {} for name in Settings.__annotations__}


def json_of(planned):
    """What a plan asks for, in its own order, for an engine takes arguments as they are given."""
    return to_json(planned).decode()


def planned_specs(plan):
    """Specifications of a stage's runs by their ids."""
    specs = {
        run["run_id"]: run["spec"]
        for candidate in plan["candidates"]
        for run in candidate["runs"]
    }
    for run_id, spec in specs.items():
        WITHOUT_SETTINGS[run_id] = sys.intern(json_of({**spec, **NO_SETTINGS}))
    return {run_id: json_of(spec) for run_id, spec in specs.items()}


def planned_pair(plan):
    """The pair of a stage by its id, if it has one."""
    return {plan["pair_id"]: json_of(plan["pair"])} if plan["pair"] else {}


spec_of = PlanIndex("plan.json", RunSpec, planned_specs)
pair_of = PlanIndex("pair.json", PairSpec, planned_pair)


class Needs:
    """What a run needs, by the JSON of its specification without settings."""

    def __init__(self, text):
        spec = RunSpec.model_validate_json(text)
        self.files = run_files(spec)
        self.options = options(self.files)
        self.hardware = spec.hardware
        self.missing = self.files

    def not_there(self):
        """Those of the files that are to be made first; what was there once is not looked for again."""
        self.missing = {
            name: file
            for name, file in self.missing.items()
            if not os.path.exists(file)
        }
        return self.missing


needs = cache(Needs)


def needs_of(run_id):
    """What a run needs, once a plan asks for it."""
    spec_of.text(run_id)
    return needs(WITHOUT_SETTINGS[run_id])


def sides_of(pair_id):
    """Specifications of a pair's two sides."""
    pair = pair_of(pair_id)
    return [pair.a, pair.b]


def pair_evidence(wildcards):
    """The pair that was measured again for a stage, where its study asks for that."""
    if not SEARCHES[wildcards.search].objective.interleaved_cycles:
        return {}
    planned = checkpoints.plan_pair.get(
        study=study_of(wildcards.search), stage=wildcards.stage
    ).output.pair
    pair = json.loads(Path(planned).read_text(encoding="utf-8"))["pair_id"]
    measured = {"pair_status": f"results/pairs/{pair}/status.json"} if pair else {}
    return {"pair": planned, **measured}


def run_files(spec):
    """What a run is made from, by its name as an option of the script."""
    engine, client = spec.engine, spec.client
    files = {
        "environment": environment_file(engine.name, engine.environment_sha256),
        "model": model_file(spec.model),
        "requests": f"results/workloads/{workload_id(spec.workload)}/requests.parquet",
    }
    if client.environment_sha256 is not None:
        files["client_environment"] = environment_file(
            client.name, client.environment_sha256
        )
    return files


def run_options(run_id):
    """The options of the script for a run; in one parameter, for Snakemake formats each for each of thousands of runs."""
    spec = shlex.quote(spec_of.text(run_id))
    return f"--spec {spec} {needs_of(run_id).options}"


def files_of_sides(pair_id, name):
    """The files of that name of a pair's two sides."""
    sides = map(run_files, sides_of(pair_id))
    return [files[name] for files in sides if name in files]


def with_signature(function):
    """The function with its signature found: Snakemake looks it up time and again for each of thousands of runs."""
    function.__signature__ = inspect.signature(function)
    return function


def serving_threads(hardware):
    """Cores a run takes of the machine's."""
    return DEVICES.get(hardware.device).threads(workflow.cores, hardware.count)


def hardware_of_runs():
    """All that runs of the studies may take, each once."""
    return list(
        dict.fromkeys(
            HardwareSpec(
                accelerator=study.hardware.accelerator,
                device=study.hardware.device,
                count=count,
            )
            for study in [project.study for project in PROJECTS.values()]
            for count in sorted(accelerator_counts(study))
        )
    )


def accelerators_of_runs():
    """Accelerators of a run: a number where all take as many, for a function is asked for each of thousands of runs."""
    counts = {hardware.count for hardware in hardware_of_runs()}
    if len(counts) == 1:
        return counts.pop()
    return with_signature(lambda wildcards: needs_of(wildcards.run_id).hardware.count)


def asked_of_cluster(request):
    """Resources of a job that measures: each as far as `request(wildcards, attempt)` has it."""

    def resource(name):
        nothing = 0 if name == "mem_mb" else None  # Snakemake wants a number of it
        return with_signature(
            lambda wildcards, attempt: request(wildcards, attempt).get(name, nothing)
        )

    # Snakemake asks each for each of thousands of runs; without a site there is no cluster
    return {name: resource(name) for name in (RESOURCES if "site" in config else [])}


def spec_json(spec):
    """A specification as one line of sorted JSON: equal content is an equal parameter."""
    return canonical_json(spec.model_dump(mode="json"))


# The mark that all runs of a stage are there: this workflow's own, and read by nobody.
MEASURED = ".snakemake/measured/{study}/{stage}"


def run_file(run_id):
    """What stands for a run that is to be measured; its folder appears in one step."""
    return f"results/runs/{run_id}/manifest.json"


def status_file(run_id):
    """What stands for a run that was measured."""
    return f"results/runs/{run_id}/status.json"


def planned_runs(study, stage):
    """Ids of a stage's runs, once its plan is known: each once, in order."""
    plan = Path(stage_folder(f"studies/{study}", stage)) / "plan.json"
    if not plan.exists():
        return (
            []
        )  # whoever asks reads the plan too, and is asked again once that is made
    checkpoints.plan_stage.get(study=study, stage=stage)
    return spec_of.ids(plan)


def missing_runs(study, stage):
    """What is to be measured of a stage, once its plan is known.

    Complete runs are left out: nothing can ask for them again, and Snakemake need not look at thousands of jobs.
    """
    return [
        run_file(run_id)
        for run_id in planned_runs(study, stage)
        if not os.path.exists(status_file(run_id))
    ]


def runs_to_wait_for(study, stage):
    """What is there once no run of a stage is missing: nothing where none is."""
    missing = missing_runs(study, stage)
    # with one of them, for there may be a mark of an earlier time
    return [MEASURED.format(study=study, stage=stage), missing[0]] if missing else []


def measured_runs(study, stage):
    """Status files of a stage's runs: files that no rule makes, so that they cost no job.

    Where some are missing, what to wait for: then this is asked again.
    """
    # within a job on another node they are there, and may be seen a while later
    waiting = runs_to_wait_for(study, stage) if workflow.is_main_process else []
    return waiting or [status_file(run) for run in planned_runs(study, stage)]


def plans_of_all_studies(wildcards):
    """Plans of all stages of all studies."""
    return [
        f"{stage_folder(f'studies/{study}', stage)}/plan.json"
        for study, project in PROJECTS.items()
        for stage in project.stage_names
    ]


def runs_of_all_studies(wildcards):
    """What is there once no run of any stage that is planned is missing."""
    awaited = []
    for study, project in PROJECTS.items():
        for stage in project.stage_names:
            try:
                awaited += runs_to_wait_for(study, stage)
            except IncompleteCheckpointException:
                continue  # an older plan: it is made anew, and then this is asked again
    return awaited
