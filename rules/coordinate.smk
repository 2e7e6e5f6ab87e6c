"""Claims the studies while they are made; logs progress, and what Slurm cannot start of what the site asks for.

Writes the index of what is there when a job failed.

The target `preflight` makes no run, so nothing else is done for it.
"""

from servelab.workflow.coordination import (
    ProgressHandler,
    cancel_left_jobs,
    claim_studies,
    hang_up_as_terminated,
    write_index,
)


onstart:
    hang_up_as_terminated()
    if set(workflow.dag_settings.targets) != {"preflight"}:
        try:
            SIGNING.check(is_here=workflow.local_exec)
            PLACEMENTS.check_nodes(STUDIES.live)
            if workflow.local_exec and not workflow.dag_settings.targets:
                STUDIES.check_accelerators(UNMEASURED)
                STUDIES.check_environments(RESULTS, UNMEASURED)
            claim_studies(STUDIES.searches, RESULTS)
            PLACEMENTS.watch_slurm(logger.warning)
            lines = [*cancel_left_jobs(Path()), *STUDIES.troubles(RESULTS)]
        except ServelabError as error:
            raise WorkflowError(str(error))
        live = [project.study for project in STUDIES.live.values()]
        logger.addHandler(
            ProgressHandler(live, RESULTS, JOBS.runs, logger, MEASURING)
        )
        for line in lines:
            logger.warning(line)


onerror:
    if set(workflow.dag_settings.targets) != {"preflight"}:
        if wrong := write_index(STUDIES.searches, RESULTS):
            logger.warning(wrong)
