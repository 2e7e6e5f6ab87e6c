"""Reads the studies of the configuration, and finds the files that belong together. Makes nothing."""

import gc

# Thousands of jobs stay for the whole workflow: looking through them for garbage again and again takes a third of a start.
gc.set_threshold(1_000_000, 20, 100)

import os
from functools import cache
from pathlib import Path

from snakemake.exceptions import WorkflowError
from snakemake.logging import logger

from servelab.answers import study_versions, versions_id
from servelab.engines import ENGINES
from servelab.errors import ServelabError
from servelab.forecast import forecast
from servelab.identity import canonical_json, content_id, workload_id
from servelab.preflight import preflight
from servelab.preflight.table import troubles
from servelab.project import load_project
from servelab.quantization import FORMATS
from servelab.recorded.study import load_recorded
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
    workload_id(spec): (spec, project.workloads[load.workload].dataset)
    for project in PROJECTS.values()
    for load in project.loads
    for spec in [load.requests(project.workload_spec(load.workload))]
}


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


def all_stages(search):
    """The stages in order, the reserved comparison included."""
    studies = PROJECTS if search.startswith("studies/") else RECORDED
    return studies[study_of(search)].stage_names


def search_stages(search):
    """The stages that decide something: all but the reserved comparison."""
    return all_stages(search)[:-1]


def code(*names):
    """Source files whose content decides a cheap rule's output."""
    return [str(path) for name in names for path in sorted(Path("scripts").glob(name))]


def converter_environment(wildcards):
    """The environment of an engine that serves the wanted format: it has the libraries that write it.

    One that was built from a lock: a container's or the host's python is not to be run from here.
    """
    for environment, (engine, runtime, _) in ENGINE_ENVIRONMENTS.items():
        if runtime == "venv" and wildcards.format in ENGINES.get(engine).model_formats:
            return ancient(environment)
    raise WorkflowError(
        f"no engine of the studies that is built from a lock serves {wildcards.format}, so nothing here can convert to it"
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


def past_stages(search, stage):
    """Plans and decisions of all stages before; their tables too where what they took or reached can end the search."""
    stages = all_stages(search)
    past = stages[: stages.index(stage)]
    if not past:
        return {}
    files = {
        "past_plans": stage_files(search, "plan.json", past),
        "past_decisions": stage_files(search, "decision.json", past),
    }
    if stage != COMPARISON and SEARCHES[search].search.stop_when.given:
        files["past_tables"] = stage_files(search, "table.parquet", past)
    return files


def options(files):
    """Options of a script for files by their names: `--previous-plan FILE`, `--past-plans FILE FILE`."""
    return " ".join(
        f"--{name.replace('_', '-')} {path if isinstance(path, str) else ' '.join(path)}"
        for name, path in files.items()
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
