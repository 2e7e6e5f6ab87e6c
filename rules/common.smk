"""Reads the studies of the configuration, and finds the files that belong together. Makes nothing."""

import json
import os
import time
from functools import cache
from pathlib import Path

from snakemake.exceptions import WorkflowError
from snakemake.logging import logger

from servelab.answers import study_versions, versions_id
from servelab.deciding_pair import PairSpec
from servelab.devices import DEVICES
from servelab.engines import ENGINES
from servelab.errors import ServelabError
from servelab.forecast import forecast
from servelab.identity import canonical_json, content_id, workload_id
from servelab.preflight import preflight
from servelab.preflight.table import troubles
from servelab.project import load_project
from servelab.quantization import FORMATS
from servelab.recorded.study import load_recorded
from servelab.site import RESOURCES
from servelab.spec import RunSpec, WorkloadSpec
from servelab.study import COMPARISON

RESULTS = Path("results")
STUDIES = list(config["studies"])
RECORDED_STUDIES = list(config.get("recorded", []))

try:
    PROJECTS = {
        study: load_project(Path(f"config/studies/{study}.yaml"), Path())
        for study in STUDIES
    }
    RECORDED = {
        study: load_recorded(Path(f"config/recorded/{study}"))
        for study in RECORDED_STUDIES
    }
except ServelabError as error:
    raise WorkflowError(str(error))

# Every study by its search, the folder below results/ that its stages and its report lie in. A live and a recorded study
# may have the same name.
SEARCHES = {
    **{f"studies/{study}": project.study for study, project in PROJECTS.items()},
    **{f"recorded/{study}": recorded for study, recorded in RECORDED.items()},
}

# A measure job ends its server when the workflow goes away, however that happens.
os.environ.update(SERVELAB_COORDINATOR_PID=str(os.getpid()))

if workflow.is_main_process:
    for project in PROJECTS.values():
        logger.info("\n".join(forecast(project, RESULTS).lines()))
    for recorded in RECORDED.values():
        logs = len(list(recorded.log_files()))
        logger.info(f"{recorded.study}: {logs} recorded logs, nothing to measure")


wildcard_constraints:
    search=r"(studies|recorded)/[a-z0-9][a-z0-9._-]*",
    study=r"[a-z0-9][a-z0-9._-]*",
    stage=r"[a-z0-9][a-z0-9._-]*",
    dataset=r"[a-z0-9][a-z0-9._-]*",
    run_id=r"[0-9a-f]{20}",
    pair_id=r"[0-9a-f]{20}",
    workload_id=r"[0-9a-f]{20}",
    model_key=r"[0-9a-f]{20}",
    lock_hash=r"[0-9a-f]{12}",
    versions_id=r"[0-9a-f]{20}",
    format="safetensors",
    quantization="|".join(FORMATS),


def environment_file(tool, sha256):
    """The marker of an engine's or a load client's environment, keyed by its lock's content."""
    return f"results/envs/{tool}-{sha256[:12]}/environment.json"


def model_file(model):
    """The description of a model's files, in the format its engine wants."""
    suffix = f"-{model.quantization or model.format}" if model.conversion else ""
    return f"results/models/{source_id(model.source)}{suffix}/model.json"


@cache
def source_id(source):
    """The name of a model's folder."""
    return content_id(source.model_dump(mode="json"))


# environment.json → tool, runtime, lock
ENGINE_ENVIRONMENTS = {
    environment_file(project.engine(alias).name, project.environment_sha256(alias)): (
        project.engine(alias).name,
        project.study.engines[alias].runtime,
        project.lock(alias),
    )
    for project in PROJECTS.values()
    for alias in project.study.engines
}
CLIENT_ENVIRONMENTS = {
    environment_file(client.name, client.environment_sha256): (
        client.name,
        "venv",
        project.client_lock,
    )
    for project in PROJECTS.values()
    for client in [project.client_spec()]
    if project.client_lock
}
ENVIRONMENTS = ENGINE_ENVIRONMENTS | CLIENT_ENVIRONMENTS
MODEL_SOURCES = {
    content_id(source.model_dump(mode="json")): source
    for study in [project.study for project in PROJECTS.values()]
    for source in [
        study.model.variant_source(variant)
        for variant in ["base", *study.model.variants]
    ]
}
WORKLOADS = {
    workload_id(spec): (spec, project.workloads[name].dataset)
    for project in PROJECTS.values()
    for name in project.study.workloads
    for spec in [project.workload_spec(name)]
}


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
            self.look()
            if key not in self.found:
                if time.monotonic() >= until:
                    raise WorkflowError(
                        f"no plan under {RESULTS}/studies asks for {self.kind} {key}"
                    )
                time.sleep(1)
        return self.found[key]

    def look(self):
        """Reads what is new on disk."""
        for plan in RESULTS.glob(f"studies/*/stages/*/{self.name}"):
            stamp = plan.stat().st_mtime_ns
            if self.read.get(plan) != stamp:
                self.read[plan] = stamp
                self.found.update(self.entries(json.loads(plan.read_bytes())))


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
        return lambda wildcards, attempt: request(wildcards, attempt).get(name, nothing)

    # Snakemake asks each for each of thousands of runs; without a site there is no cluster
    return {name: resource(name) for name in (RESOURCES if "site" in config else [])}


def spec_json(spec):
    """A specification as one line of sorted JSON: equal content is an equal parameter."""
    return canonical_json(spec.model_dump(mode="json"))


def study_of(search):
    """The name of a study, which its search ends with."""
    return search.split("/")[1]


def study_file(wildcards):
    """The file in which a study of either kind is written."""
    live = wildcards.search.startswith("studies/")
    return (
        f"config/{wildcards.search}.yaml"
        if live
        else f"{study_path(wildcards)}/study.yaml"
    )


def study_path(wildcards):
    """What scripts read a study from: a live one's file, a recorded one's folder."""
    live = wildcards.search.startswith("studies/")
    return study_file(wildcards) if live else f"config/{wildcards.search}"


def stage_folder(search, stage):
    return f"results/{search}/stages/{stage}"


def stage_files(search, name, stages):
    """The file of that name of each of a study's stages."""
    return [f"{stage_folder(search, stage)}/{name}" for stage in stages]


def search_stages(search):
    """The stages that decide something: all but the reserved comparison."""
    return [stage.name for stage in SEARCHES[search].stages]


def all_stages(search):
    """The stages in order, the reserved comparison included."""
    return [*search_stages(search), COMPARISON]


def planned_runs(study, stage):
    """Status files of a stage's runs, once its plan is known."""
    plan = Path(checkpoints.plan_stage.get(study=study, stage=stage).output.plan)
    return status_files(plan, plan.stat().st_mtime_ns)


@cache
def status_files(plan, stamp):
    """Status files of the runs of a plan, which was written at that time: each once, in order."""
    candidates = json.loads(plan.read_bytes())["candidates"]
    runs = [run["run_id"] for candidate in candidates for run in candidate["runs"]]
    return [f"results/runs/{run_id}/status.json" for run_id in dict.fromkeys(runs)]


def runs_of_all_studies(wildcards):
    """Status files of all runs of all studies, as far as they are planned."""
    return [
        run
        for study, project in PROJECTS.items()
        for stage in project.stage_names
        for run in planned_runs(study, stage)
    ]


def code(*names):
    """Source files whose content decides a cheap rule's output."""
    return [str(path) for name in names for path in sorted(Path("scripts").glob(name))]


def converter_environment(wildcards):
    """The environment of an engine that serves the wanted format: it has the libraries that write it."""
    for environment, (engine, _, _) in ENGINE_ENVIRONMENTS.items():
        if wildcards.format in ENGINES.get(engine).model_formats:
            return ancient(environment)
    raise WorkflowError(
        f"no engine of the studies serves {wildcards.format}, so nothing here can convert to it"
    )


def datasets_of(workload):
    """The dataset a workload draws from, if it draws from one."""
    dataset = WORKLOADS[workload][1]
    return [f"results/datasets/{dataset}/dataset.json"] if dataset else []


def workload_model(wildcards):
    """The model whose tokenizer counts the workload's tokens."""
    tokenizer = WORKLOADS[wildcards.workload_id][0].tokenizer
    return ancient(
        f"results/models/{content_id(tokenizer.model_dump(mode='json'))}/model.json"
    )


def previous_stage(search, stage):
    """Plan and decision of the stage before: this stage starts from its winner."""
    stages = all_stages(search)
    position = stages.index(stage)
    if position == 0:
        return {}
    folder = stage_folder(search, stages[position - 1])
    return {
        "previous_plan": f"{folder}/plan.json",
        "previous_decision": f"{folder}/decision.json",
    }


def options(files):
    """Options of a script for files by their names: `--previous-plan FILE`."""
    return " ".join(
        f"--{name.replace('_', '-')} {path}" for name, path in files.items()
    )


def study_locks(wildcards):
    """Locks of a study's engines and of its client: their content is part of every run's identity."""
    project = PROJECTS[wildcards.study]
    locks = {str(project.lock(alias)) for alias in project.study.engines}
    return sorted(
        locks | ({str(project.client_lock)} if project.client_lock else set())
    )


def answer_file(study):
    """Where a study's answer is kept under the versions that its engines have now."""
    name = versions_id(study_versions(PROJECTS[study]))
    return f"results/studies/{study}/answers/{name}.json"


def history_files(search, *names):
    """Tables of a live study that compare versions; of a recorded one there are none."""
    if not search.startswith("studies/"):
        return {}
    return {name: f"results/{search}/{name}.parquet" for name in names}


def recorded_logs(wildcards):
    """The logs of a recorded study."""
    folder = f"config/recorded/{wildcards.study}/logs"
    return [f"{folder}/{file}" for _, _, file in RECORDED[wildcards.study].log_files()]


def beside(search):
    """Improvements of the other study of this name, live or recorded, where both are asked for."""
    kind, study = search.split("/")
    other = f"{'recorded' if kind == 'studies' else 'studies'}/{study}"
    if other not in SEARCHES:
        return {}
    return {"beside": f"results/{other}/improvements.parquet"}


def origin_of(wildcards):
    """What a report's figures come from: files that it shows, and the options that name them."""
    if wildcards.search.startswith("studies/"):
        return {}, "--runs results/runs"
    folder = f"results/{wildcards.search}"
    return (
        {"claims": f"{folder}/claims.parquet", "logs": f"{folder}/logs"},
        f"--recorded {study_path(wildcards)} --claims {folder}/claims.parquet",
    )


def say_troubles():
    """For the start of a workflow that has something to do: what is known at once, a line for each error and warning."""
    if "preflight" in workflow.dag_settings.targets:
        return
    for project in PROJECTS.values():
        for line in troubles(preflight(project, RESULTS, ask=False)):
            logger.warning(line)
