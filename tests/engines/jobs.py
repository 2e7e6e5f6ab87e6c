"""Jobs for `scripts/measure.py`, and its command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from servelab.core.identity import run_id
from servelab.measure.inputs import JobRun, MeasuringJob

ROOT = Path(__file__).parents[2]
FILES = ["manifest.json", "requests.parquet", "server.log", "spec.json", "status.json", "telemetry.parquet"]
"""What a measured run consists of."""


def job(*visits: list[JobRun]) -> MeasuringJob:
    """A job of these visits."""
    return MeasuringJob(visits=list(visits))


def command(runs: Path, *visits: list[JobRun]) -> list[str]:
    """The command that measures these visits."""
    files = {"output": {"manifest": str(runs / "any/manifest.json")}}
    words = [f"files={json.dumps(files)}", f"job={job(*visits).model_dump_json()}"]
    return [sys.executable, "scripts/measure.py", "measure", *words]


def measure(runs: Path, *visits: list[JobRun]) -> tuple[int, str]:
    """Runs the command line; its exit code and what it printed."""
    done = subprocess.run(command(runs, *visits), cwd=ROOT, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def folder(runs: Path, run: JobRun) -> Path:
    """Where a run's files are."""
    return runs / run_id(run.spec)


def status(runs: Path, run: JobRun) -> dict[str, Any]:
    """A run's `status.json`."""
    return json.loads((folder(runs, run) / "status.json").read_text())
