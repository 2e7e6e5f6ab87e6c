"""Prints the progress of studies from their files: while the workflow runs, after it, or on another node."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from servelab.core.cli import run
from servelab.core.errors import ConfigError
from servelab.search.progress import StudyProgress
from servelab.study.study import load_study


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("studies", nargs="*", help="names of studies; default: all that have results")
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--config", type=Path, default=Path("config/studies"), help="folder of the studies' files")
    arguments = parser.parse_args()

    found = sorted(folder.parent.name for folder in arguments.results.glob("studies/*/stages"))
    if not (arguments.studies or found):
        raise ConfigError(f"{arguments.results}/studies: no study has started; run `snakemake` to start one")
    for name in arguments.studies or found:
        file = arguments.config / f"{name}.yaml"
        if not file.exists():
            raise ConfigError(f"{file}: no such study; those with results: {', '.join(found) or 'none'}")
        progress = StudyProgress(load_study(file), arguments.results)
        for stage in progress.stages:
            print(progress.stage(stage).line())
        for attempt, what in progress.running():
            since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(attempt.started_s))
            print(f"{name}, running: {what}, run {attempt.id} since {since}, process {attempt.pid} on {attempt.host}")


if __name__ == "__main__":
    run(main)
