"""Reads the studies of the configuration, and finds the files that belong together. Makes nothing."""

import json
import os
from functools import cache
from pathlib import Path

from snakemake.exceptions import WorkflowError
from snakemake.logging import logger

from servelab.charts import CHARTS
from servelab.devices import DEVICES
from servelab.engines import ENGINES
from servelab.errors import ServelabError
from servelab.forecast import forecast
from servelab.identity import canonical_json, content_id, workload_id
from servelab.plan import Plan
from servelab.project import load_project
from servelab.quantization import FORMATS
from servelab.spec import RunSpec
from servelab.study import COMPARISON

RESULTS = Path("results")
STUDIES = list(config["studies"])

try:
    PROJECTS = {
        study: load_project(Path(f"config/studies/{study}.yaml"), Path())
        for study in STUDIES
    }
except ServelabError as error:
    raise WorkflowError(str(error))

# A measure job ends its server when the workflow goes away, however that happens.
os.environ["SERVELAB_COORDINATOR_PID"] = str(os.getpid())

if workflow.is_main_process:
    for project in PROJECTS.values():
        logger.info(forecast(project, RESULTS).line())


wildcard_constraints:
    study=r"[a-z0-9][a-z0-9._-]*",
    stage=r"[a-z0-9][a-z0-9._-]*",
    run_id=r"[0-9a-f]{20}",
    workload_id=r"[0-9a-f]{20}",
    model_key=r"[0-9a-f]{20}",
    lock_hash=r"[0-9a-f]{12}",
    format="safetensors",
    quantization="|".join(FORMATS),


def environment_file(engine, sha256):
    """The marker of an engine's environment, keyed by its lock's content."""
    return f"results/envs/{engine}-{sha256[:12]}/environment.json"


def model_file(model):
    """The description of a model's files, in the format its engine wants."""
    suffix = f"-{model.quantization or model.format}" if model.conversion else ""
    return f"results/models/{content_id(model.source.model_dump(mode='json'))}{suffix}/model.json"


ENVIRONMENTS = {
    environment_file(project.engine(alias).name, project.environment_sha256(alias)): (
        project.engine(alias).name,
        project.study.engines[alias].runtime,
        project.lock(alias),
    )
    for project in PROJECTS.values()
    for alias in project.study.engines
}
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


class SpecIndex:
    """Specifications of planned runs, found in the plans on disk, each plan read once."""

    def __init__(self):
        self.specs = {}
        self.read = {}

    def __call__(self, run_id):
        if run_id not in self.specs:
            for plan in RESULTS.glob("studies/*/stages/*/plan.json"):
                stamp = plan.stat().st_mtime_ns
                if self.read.get(plan) != stamp:
                    self.read[plan] = stamp
                    content = json.loads(plan.read_text(encoding="utf-8"))
                    for candidate in content["candidates"]:
                        self.specs.update(
                            {run["run_id"]: run["spec"] for run in candidate["runs"]}
                        )
        if run_id not in self.specs:
            raise WorkflowError(
                f"no plan under {RESULTS}/studies asks for run {run_id}"
            )
        return RunSpec.model_validate(self.specs[run_id])


spec_of = SpecIndex()


def spec_json(spec):
    """A specification as one line of sorted JSON: equal content is an equal parameter."""
    return canonical_json(spec.model_dump(mode="json"))


def stage_folder(study, stage):
    return f"results/studies/{study}/stages/{stage}"


def stage_files(study, name, stages):
    """The file of that name of each of a study's stages."""
    return [f"{stage_folder(study, stage)}/{name}" for stage in stages]


def search_stages(study):
    """The stages that decide something: all but the reserved comparison."""
    return [stage for stage in PROJECTS[study].stage_names if stage != COMPARISON]


def planned_runs(study, stage):
    """Status files of a stage's runs, once its plan is known."""
    plan = Plan.model_validate_json(
        Path(
            checkpoints.plan_stage.get(study=study, stage=stage).output.plan
        ).read_text()
    )
    return [f"results/runs/{run_id}/status.json" for run_id in plan.run_ids()]


def code(*names):
    """Source files whose content decides a cheap rule's output."""
    return [str(path) for name in names for path in sorted(Path("scripts").glob(name))]
