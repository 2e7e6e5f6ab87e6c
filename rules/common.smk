"""Reads the studies of the configuration, and writes their digests. What the other rules ask is in scripts/servelab/workflow/."""

import json
import os
import sys
from pathlib import Path

from snakemake.exceptions import IncompleteCheckpointException, WorkflowError
from snakemake.logging import logger

# The folder of this workflow's scripts: in a folder of studies, not below the current folder.
SCRIPTS = Path(
    os.path.relpath(workflow.current_basedir.join("../scripts").get_path_or_uri(False))
)
if SCRIPTS.parts[0] == os.pardir:
    SCRIPTS = SCRIPTS.resolve()
sys.path.insert(0, str(SCRIPTS.resolve()))

from servelab.core.errors import ServelabError
from servelab.core.run_spec import QUANTIZATIONS
from servelab.measure.sealed_runs import Repeats, SealedRuns
from servelab.study.project import RECORDED
from servelab.workflow import console
from servelab.workflow.coordination import end_with_parent
from servelab.workflow.made_from import (
    CODE,
    MADE_FROM,
    MADE_FROM_LIVE,
    MADE_FROM_RECORDED,
    set_back,
    write_digests,
)
from servelab.workflow.jobs import MEASURED, MeasuringJobs, Plans, StageRuns
from servelab.workflow.needs import Sources, spec_json
from servelab.workflow.placement import MEASURING_RULE, Placements
from servelab.workflow.studies import (
    read_configuration,
    read_studies,
    shared_runs,
)
from servelab.workflow.rule_parts import (
    SHOWN,
    StudyFiles,
    call,
    rule_files,
    stage_tables,
)

RESULTS = Path("results")
PLANS = Plans(
    RESULTS,
    lambda: 0 if workflow.is_main_process else workflow.execution_settings.latency_wait,
)
try:
    CONFIG = read_configuration(config)
    SHARED = (
        shared_runs(CONFIG, RESULTS, logger.warning)
        if workflow.is_main_process
        else None
    )
    SEALED = SealedRuns(
        RESULTS / "runs",
        Path(".snakemake/broken"),
        logger.warning if workflow.is_main_process else lambda line: None,
        elsewhere=SHARED,
        # without an executor yet, it is read only: for the forecast, or to list something
        is_running=lambda: workflow.executor_plugin is not None and not workflow.dryrun,
        repeats=(
            Repeats(CONFIG.again, PLANS.partners) if workflow.is_main_process else None
        ),
    )
    STUDIES = read_studies(CONFIG)
    FILES = StudyFiles(STUDIES)
    SOURCES = Sources(STUDIES.live)
    JOBS = MeasuringJobs(PLANS, SEALED, SOURCES.check_of)
    PLACEMENTS = Placements(workflow, CONFIG, STUDIES, JOBS, RESULTS / "runs")
except ServelabError as error:
    raise WorkflowError(str(error))
RUNS = StageRuns(
    STUDIES,
    PLANS,
    SEALED,
    lambda study, stage: checkpoints.plan_stage.get(study=study, stage=stage),
    IncompleteCheckpointException,
    is_main_process=workflow.is_main_process,
)
console.measuring[:] = [
    console.MeasuringRule(MEASURING_RULE, JOBS.title, lambda: workflow.local_exec)
]
NAMES = json.dumps(STUDIES.found_as(), sort_keys=True)
if workflow.is_main_process:
    set_back(RESULTS)
    write_digests(SCRIPTS, STUDIES)

if workflow.remote_exec:  # the process of a job on a cluster
    end_with_parent()

# A measure job ends its server when the workflow goes away, however that happens. Every rule's command names its script
# below SERVELAB_SCRIPTS: a variable, as jobs are not repeated when the workflow's folder is another.
os.environ.update(
    SERVELAB_COORDINATOR_PID=str(os.getpid()),
    SERVELAB_SCRIPTS=str(SCRIPTS),
    **PLACEMENTS.variables,
)

try:
    TEXTS, UNMEASURED = (
        STUDIES.outlook(RESULTS, SEALED.is_complete)
        if workflow.is_main_process
        else ([], [])
    )
    for line in [*TEXTS, *(SHARED.lines() if SHARED else [])]:
        logger.info(line)
except ServelabError as error:
    raise WorkflowError(str(error))


wildcard_constraints:
    search=r"(studies|recorded)/[a-z0-9][a-z0-9._-]*",
    study=r"[a-z0-9][a-z0-9._-]*",
    stage=r"[a-z0-9][a-z0-9._-]*",
    dataset=r"[a-z0-9][a-z0-9._-]*",
    content=r"[0-9a-f]{12}",
    run_id=r"[0-9a-f]{20}",
    workload_id=r"[0-9a-f]{20}",
    model_key=r"[0-9a-f]{20}",
    served_model=r"[0-9a-f]{20}(-[a-z0-9_]+)?",
    settings_id=r"[0-9a-f]{20}",
    lock_hash=r"[0-9a-f]{12}",
    versions_id=r"[0-9a-f]{20}",
    format="safetensors",
    quantization="|".join(QUANTIZATIONS),
