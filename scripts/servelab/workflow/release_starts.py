"""Measures starts of releases of an engine: a study for each release, run by the workflow, so that every run is kept.

The study of a release is the user's study with that release and its baseline alone. A start is one more start of that
baseline. Its run has the name that it would have in any study, so nothing is measured twice.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from servelab.core.errors import ConfigError, ServelabError
from servelab.core.files import write_text
from servelab.core.shipped import own_or_shipped
from servelab.core.yaml_file import read_yaml
from servelab.measure.run_files import RunStatus
from servelab.metrics.tables.io import read_table
from servelab.search.bisect import Skipped, Start
from servelab.search.project import load_project
from servelab.study.plan import Plan

STUDIES = Path("config/studies")
STAGE = "starts"
_KEPT = ("model", "hardware", "objective", "protocol", "client", "baseline")
"""Parts of the user's study that decide how its baseline is measured."""

Lock = Callable[[str], Path]
"""The lock of a release; `Skipped` if there is none and none can be made."""


class ReleaseStarts:
    """Releases of the engine that serves the baseline of a study; see `servelab.search.bisect.Releases`.

    `root` is the folder that has `config/` and `results/`.
    """

    def __init__(self, root: Path, study: str, engine: str, lock: Lock, options: list[str]) -> None:
        file = root / STUDIES / f"{study}.yaml"
        self._project = load_project(file, root)
        self._content: dict[str, Any] = read_yaml(file)
        self._root, self._study, self._engine = root, study, engine
        self._lock, self._options = lock, options
        own = self._project.study
        if own.baseline.engine != engine:
            raise ConfigError(
                f"{file}: --engine {engine}: its baseline is served by {own.baseline.engine}; name that one"
            )
        if own.engines[engine].runtime != "venv":
            raise ConfigError(
                f"{file}: engines.{engine}.runtime: only releases that are built from a lock can be compared"
            )

    def name(self, version: str) -> str:
        """The study of a release."""
        return f"{self._study}-{self._engine}-{version}"

    def prepare(self, version: str) -> None:
        """See `Releases.prepare`: builds the environment, and checks that it serves."""
        self._write(version, starts=1)
        environment = f"results/envs/{self._project.engine(self._engine).name}-{self._sha256(version)[:12]}"
        done = self._snakemake(version, f"{environment}/environment.json")
        if done.returncode != 0:
            raise Skipped(f"no environment: {_reason(done.stdout)}")

    def measure(self, version: str, number: int) -> Start:
        """See `Releases.measure`."""
        self._write(version, starts=number + 1)
        folder = Path("results/studies") / self.name(version) / "stages" / STAGE
        done = self._snakemake(version, f"{folder}/table.parquet")
        if done.returncode != 0:
            raise Skipped(_reason(done.stdout))
        row = read_table(self._root / folder / "table.parquet").iloc[0]
        runs = {
            run.start: run.run_id for run in Plan.read(self._root / folder / "plan.json").candidates[0].measured_runs
        }
        status = RunStatus.read(self._root / "results/runs" / runs[f"search-{number}"] / "status.json")
        if not status.is_ok:
            raise Skipped(f"{status.reason}: {status.message}")
        if row["validity"] == "invalid":
            raise Skipped(f"its runs are not valid: {row['validity_note']}")
        value = statistics.fmean(status.objective_rounds)
        return Start(value, datetime.fromisoformat(status.started_at), datetime.fromisoformat(status.finished_at))

    def _sha256(self, version: str) -> str:
        file = self._root / STUDIES / f"{self.name(version)}.yaml"
        return load_project(file, self._root).environment_sha256(self._engine)

    def _write(self, version: str, starts: int) -> None:
        """Writes the study of a release; one that is as it should be is not touched."""
        on = self._project.study.objective.on
        engine = dict(self._content["engines"][self._engine]) | {"version": version, "lock": str(self._lock(version))}
        workloads = self._content["workloads"]
        content = {
            "study": self.name(version),
            "title": f"{self._engine} {version}, for a comparison of releases",
            **{key: self._content[key] for key in _KEPT if key in self._content},
            "engines": {self._engine: engine},
            "search": {"strategy": "staged", "recheck": False, "incumbent_starts": starts},
            "stages": [{"name": STAGE, "candidates": [{"engine": self._engine}]}],
            "workloads": {on: workloads[on]} if isinstance(workloads, dict) else [on],
        }
        text = f"# Written by `servelab bisect {self._study}`.\n" + yaml.safe_dump(content, sort_keys=False)
        file = self._root / STUDIES / f"{self.name(version)}.yaml"
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            write_text(file, text)

    def _snakemake(self, version: str, target: str) -> subprocess.CompletedProcess[str]:
        snakefile, profile = (own_or_shipped(self._root, name) for name in ("Snakefile", "profiles/default"))
        line = [] if "--profile" in self._options else ["--profile", str(profile.absolute())]
        line += ["--snakefile", str(snakefile.absolute()), *self._options]
        line += ["--config", f"studies=[{json.dumps(self.name(version))}]", "--", target]
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        return subprocess.run(
            [sys.executable, "-m", "snakemake", *line],
            cwd=self._root,
            env={**os.environ, "PATH": path},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )


def _reason(printed: str) -> str:
    """The line that explains why a workflow failed."""
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    telling = [line for line in lines if line.lower().startswith("error")]
    if not lines:
        raise ServelabError("snakemake ended without a word")
    return (telling or lines)[-1 if not telling else 0][:300]
