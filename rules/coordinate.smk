"""Places measuring jobs where the site says, claims the studies, logs progress and what Slurm cannot start.

Included last, when all rules are defined.
"""

from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor
from servelab.core.ssh_signature import check_key
from servelab.workflow.coordination import (
    cancel_left_jobs,
    claim_studies,
    hang_up_as_terminated,
)
from servelab.workflow.progress_lines import ProgressHandler

PLACEMENTS.place(str(SCRIPTS.resolve().parent / "envs/workflow.yaml"))

# The executor looks at its jobs 10 s later each time that none has ended, up to 180 s: devices would stay idle.
RemoteExecutor.next_seconds_between_status_checks = property(
    lambda executor: 20, lambda executor, seconds: None
)


onstart:
    hang_up_as_terminated()
    try:
        if CONFIG.sign:
            check_key(CONFIG.sign)
        PLACEMENTS.check_nodes(STUDIES.live)
        asked = workflow.dag_settings
        if workflow.local_exec and not (asked.targets or asked.until):
            STUDIES.check_accelerators(UNMEASURED)
            STUDIES.check_environments(RESULTS, UNMEASURED)
        claim_studies(STUDIES.searches, RESULTS)
        PLACEMENTS.watch_slurm(logger.warning)
        lines = [*cancel_left_jobs(Path()), *STUDIES.troubles(RESULTS)]
    except ServelabError as error:
        raise WorkflowError(str(error))
    live = [project.study for project in STUDIES.live.values()]
    logger.addHandler(ProgressHandler(live, RESULTS, JOBS.runs))
    for line in lines:
        logger.warning(line)
