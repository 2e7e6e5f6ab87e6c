"""Prints the progress of studies from their files: while the workflow runs, after it, or on another node."""

from __future__ import annotations

import argparse
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

from servelab.core.errors import ConfigError, Outage
from servelab.machine.allocations.slurm import QueuedJob, queue
from servelab.report.json_output import StatusOutput, print_line
from servelab.search.progress import StudyProgress
from servelab.study.study import load_study


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("studies", nargs="*", help="names of studies; default: all that have results")
    parser.add_argument("--json", action="store_true", help="print a JSON object for each study")
    parser.add_argument("--results", type=Path, default=Path("results"), help="default: results")
    parser.add_argument("--config", type=Path, default=Path("config/studies"), help="folder of the studies' files")
    parser.add_argument(
        "--tail", nargs="?", const="", metavar="RUN", help="follow a run's log, by how its id begins; or the newest log"
    )
    return parser


def main(arguments: argparse.Namespace) -> None:
    if arguments.tail is not None:
        log = log_of(arguments.tail, arguments.results)
        os.execvp("tail", ["tail", "-n", "20", "-F", str(log)])  # noqa: S606
    show = _print_json if arguments.json else _show
    show(_studies(arguments))


def log_of(run: str, results: Path) -> Path:
    """The newest log of a measuring job whose name begins so."""
    logs = list((results / "logs/measure").glob(f"{run}*.log"))
    if not logs:
        raise ConfigError(f"--tail {run}: {results}/logs/measure has no log whose name begins so")
    return max(logs, key=lambda log: log.stat().st_mtime)


def _studies(arguments: argparse.Namespace) -> dict[str, StudyProgress]:
    """Progress of the studies that were asked for, by name."""
    found = sorted(folder.parent.name for folder in arguments.results.glob("studies/*/stages"))
    if not (arguments.studies or found):
        raise ConfigError(f"{arguments.results}/studies: no study has started: servelab run STUDY")
    studies = {}
    for name in arguments.studies or found:
        file = arguments.config / f"{name}.yaml"
        if not file.exists():
            raise ConfigError(f"{file}: no such study; those with results: {', '.join(found) or 'none'}")
        studies[name] = StudyProgress(load_study(file), arguments.results)
    return studies


def _show(studies: dict[str, StudyProgress]) -> None:
    for name, progress in studies.items():
        for stage in progress.stages:
            print(progress.stage(stage).line())
        for attempt, what in progress.running():
            since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(attempt.started_s))
            print(f"{name}, running: {what}, run {attempt.id} since {since}, process {attempt.pid} on {attempt.host}")
        for line in queue_lines(progress.titles(), _queue(), datetime.now()):
            print(f"{name}, {line}")


def _print_json(studies: dict[str, StudyProgress]) -> None:
    for name, progress in studies.items():
        running = [
            {"what": what, "run_id": attempt.id, "since_s": attempt.started_s, "host": attempt.host, "pid": attempt.pid}
            for attempt, what in progress.running()
        ]
        stages = [asdict(progress.stage(stage)) for stage in progress.stages]
        queued = list(queue_lines(progress.titles(), _queue(), datetime.now()))
        print_line(StatusOutput(study=name, stages=stages, running=running, queued=queued))


def queue_lines(titles: Mapping[str, str], jobs: Sequence[QueuedJob], now: datetime) -> Iterator[str]:
    """A line for each of Slurm's jobs that measures one of these runs: its state, since when, and Slurm's reason."""
    for job in jobs:
        if title := titles.get(job.comment.rpartition("_")[2]):
            minutes = (now - datetime.fromisoformat(job.since)).total_seconds() / 60
            where = f" on {job.node}" if job.node else f": {job.reason}"
            yield f"{title}: Slurm job {job.id} {job.state.lower()} for {minutes:.0f} min{where}"


def _queue() -> list[QueuedJob]:
    """The jobs of a workflow in this folder; none where Slurm does not answer."""
    with suppress(Outage):
        return queue(Path()) if Path(".snakemake/slurm_logs").exists() and shutil.which("squeue") else []
    return []
