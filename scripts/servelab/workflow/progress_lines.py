"""Progress while the workflow runs: a line of text when a job has measured its runs, and objects for programs."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from snakemake.logging import logger

from servelab.core.errors import ServelabError
from servelab.core.files import read_json
from servelab.measure.run_files import RunStatus, fault_file
from servelab.measure.run_folder import read_status
from servelab.search.progress import StageProgress, StudyProgress
from servelab.study.study import Study
from servelab.workflow.console import Console, Event, job_name, last_line

_for_programs: list[TextIO] = []  # where `run_for_programs` has objects written


class ProgressHandler(logging.Handler):
    """Follows Snakemake's own events, wherever its jobs run; `runs_of` gives the runs that a job will measure."""

    def __init__(self, studies: Iterable[Study], results: Path, runs_of: Callable[[str], list[str]]) -> None:
        super().__init__()
        self._studies = {study.study: StudyProgress(study, results) for study in studies}
        self._results, self._runs_of = results, runs_of
        self._console, self._jobs = Console(), dict[int, tuple[Event, list[str]]]()

    def emit(self, record: logging.LogRecord) -> None:
        """Takes note of a job that begins, has finished or has failed."""
        event: dict[str, Any] = vars(record)
        kind = event.get("event")
        if kind == "job_info":
            last_run = event["wildcards"].get("run_id")  # only the rule that measures has this wildcard
            runs = self._runs_of(last_run) if last_run else []
            self._jobs[event["jobid"]] = event, runs
            self._console.job_begins(event)
            if runs:
                fault_file(self._results / "runs" / runs[-1]).unlink(missing_ok=True)  # of an earlier attempt
            self._tell("begun", event, runs)
        elif kind == "job_finished" and event["job_id"] in self._jobs:
            self._finished(*self._jobs.pop(event["job_id"]))
        elif kind == "job_error" and event["jobid"] in self._jobs:
            job, runs = self._jobs.pop(event["jobid"])
            said = self._console.job_fails(event)
            message = "; ".join(line.strip() for line in said[1:-1] or said).removeprefix("error: ")
            why: dict[str, Any] = {"kind": "outage" if runs else "error"}
            with suppress(ServelabError):  # where the job was killed
                why = read_json(fault_file(self._results / "runs" / runs[-1])) if runs else why
            self._tell("failed", job, runs, message=message, **why)

    def _finished(self, job: Event, runs: list[str]) -> None:
        for stage in self._stages_of(runs):
            logger.info(stage.line())
        self._tell("finished", job, runs)
        for run in runs if _for_programs else []:
            status = read_status(self._results / "runs" / run, RunStatus)
            if status and not status.is_ok:
                self._tell("failed", job, [run], kind="result", reason=status.reason, message=status.message)
        if job["rule_name"] == "decide_stage" and (study := self._studies.get(Path(job["wildcards"]["search"]).name)):
            stages = [asdict(study.stage(job["wildcards"]["stage"]))]
            self._tell("decided", job, message=last_line(job["log"]), stages=stages)

    def _stages_of(self, runs: list[str]) -> list[StageProgress]:
        return [study.stage(stage) for study in self._studies.values() for stage in study.stages_of(runs)]

    def _tell(self, event: str, job: Event, runs: Sequence[str] = (), **more: Any) -> None:
        if _for_programs:
            stages = [asdict(stage) for stage in self._stages_of(list(runs))]
            _write({"event": event, "job": job_name(job), "runs": runs, "stages": stages} | more)


def _write(content: dict[str, Any]) -> None:
    from servelab.report.json_output import RunOutput, print_line  # only where a program reads: it takes a while

    line = RunOutput(at=datetime.now(UTC), **content)
    with suppress(BrokenPipeError):  # the measurements go on where nobody reads
        print_line(line, _for_programs[0])


def run_for_programs(arguments: Sequence[str]) -> None:
    """Runs Snakemake in this process, with objects on standard output and all text on standard error, and exits."""
    from snakemake.cli import main  # half a second

    _for_programs.append(os.fdopen(os.dup(1), "w", encoding="utf-8"))
    os.dup2(2, 1)
    try:
        main(arguments)
    except SystemExit as end:
        _write({"event": "ended", "exit_code": end.code})
        raise
