"""Keeps two workflows from making one study at once; says how far each stage is, and what is there after a failure."""

import atexit
import logging
from contextlib import ExitStack

from snakemake_interface_logger_plugins.common import LogEvent

from servelab.claims import claim
from servelab.study_progress import ProgressLines, StudyProgress

CLAIMS = ExitStack()


class ProgressHandler(logging.Handler):
    """Follows Snakemake's own events, wherever its jobs run, and says a line when a run has been measured."""

    def __init__(self):
        super().__init__()
        self.progress = ProgressLines(
            [StudyProgress(project.study, RESULTS) for project in PROJECTS.values()]
        )
        self.measuring = {}

    def emit(self, record):
        event = getattr(record, "event", None)
        if event == LogEvent.JOB_INFO and record.rule_name == "measure":
            self.measuring[record.jobid] = record.wildcards["run_id"]
        elif event == LogEvent.JOB_FINISHED and record.job_id in self.measuring:
            for line in self.progress.ended(self.measuring.pop(record.job_id)):
                logger.info(line)


def coordinate():
    """For the start of a workflow that has something to do."""
    atexit.register(CLAIMS.close)
    for search in SEARCHES:
        try:
            CLAIMS.enter_context(claim(RESULTS / search, wait=False))
        except ServelabError as error:
            raise WorkflowError(
                f"{search}: {error}; wait for it, or ask for other studies"
            )
    logger.addHandler(ProgressHandler())


def show_what_is_there():
    """For the end of a workflow in which a job failed: no rule makes an index then, and other studies may be done."""
    from servelab.index_page import index_page  # here, for most workflows end well
    from servelab.page import write_page

    try:
        page = index_page(RESULTS, list(SEARCHES))
        write_page(page, RESULTS / "index.html", RESULTS / "index.md")
    except (ServelabError, OSError) as error:
        logger.warning(f"{RESULTS}/index.html: {error}")
