"""Reads the plans on disk: the runs and pairs that they ask for, and what each is made from. Makes nothing."""

import inspect
import json
import time
from functools import cache
from pathlib import Path

from snakemake.exceptions import IncompleteCheckpointException

from servelab.deciding_pair import PairSpec
from servelab.devices import DEVICES
from servelab.site import RESOURCES
from servelab.spec import RunSpec, WorkloadSpec


class PlanIndex:
    """What the plans on disk ask for, by its id; each plan is read once.

    `entries` gives the ids and contents of one plan, `kind` says what they are.
    """

    def __init__(self, name, kind, entries):
        self.name, self.kind, self.entries = name, kind, entries
        self.found = {}
        self.read = {}

    def __call__(self, key):
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
                        f"no plan under {RESULTS}/studies asks for {self.kind} {key}"
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


def planned_specs(plan):
    """Specifications of a stage's runs by their ids."""
    return {
        run["run_id"]: RunSpec.model_validate(run["spec"])
        for candidate in plan["candidates"]
        for run in candidate["runs"]
    }


def planned_pair(plan):
    """The pair of a stage by its id, if it has one."""
    return (
        {plan["pair_id"]: PairSpec.model_validate(plan["pair"])} if plan["pair"] else {}
    )


spec_of = PlanIndex("plan.json", "run", planned_specs)
pair_of = PlanIndex("pair.json", "pair", planned_pair)


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


def engine_environment(spec):
    """The environment a run's server comes from."""
    return ancient(environment_file(spec.engine.name, spec.engine.environment_sha256))


def client_environment(spec):
    """The environment of a run's load client, if it has one of its own."""
    if spec.client.environment_sha256 is None:
        return []
    return ancient(environment_file(spec.client.name, spec.client.environment_sha256))


def requests_file(spec):
    """The requests of a run's workload."""
    return ancient(requests_path(spec.workload.model_dump_json()))


@cache
def requests_path(workload):
    """The same for a workload as JSON: thousands of runs share one."""
    name = workload_id(WorkloadSpec.model_validate_json(workload))
    return f"results/workloads/{name}/requests.parquet"


def with_signature(function):
    """The function with its signature found: Snakemake looks it up time and again for each of thousands of runs."""
    function.__signature__ = inspect.signature(function)
    return function


def run_inputs(spec):
    """What a run is made from; one function, for Snakemake asks each for each of thousands of runs."""
    return {
        "environment": engine_environment(spec),
        "client_environment": client_environment(spec),
        "model": ancient(model_file(spec.model)),
        "requests": requests_file(spec),
    }


def serving_threads(spec):
    """Cores a run takes of the machine's."""
    return DEVICES.get(spec.hardware.device).threads(
        workflow.cores, spec.hardware.count
    )


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


def planned_runs(study, stage):
    """Status files of a stage's runs, once its plan is known: each once, in order."""
    plan = Path(stage_folder(f"studies/{study}", stage)) / "plan.json"
    if not plan.exists():
        return (
            []
        )  # whoever asks reads the plan too, and is asked again once that is made
    checkpoints.plan_stage.get(study=study, stage=stage)
    return [f"results/runs/{run_id}/status.json" for run_id in spec_of.ids(plan)]


def plans_of_all_studies(wildcards):
    """Plans of all stages of all studies."""
    return [
        f"{stage_folder(f'studies/{study}', stage)}/plan.json"
        for study, project in PROJECTS.items()
        for stage in project.stage_names
    ]


def missing_runs(wildcards):
    """Status files that are not there, of all runs of all studies that are planned.

    Those that are there are left out: Snakemake looks at all of them again whenever a plan is made.
    """
    missing = []
    for study, project in PROJECTS.items():
        for stage in project.stage_names:
            try:
                runs = planned_runs(study, stage)
            except IncompleteCheckpointException:
                continue  # an older plan: it is made anew, and then this is asked again
            missing += [run for run in runs if not Path(run).exists()]
    return missing
