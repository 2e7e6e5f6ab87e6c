"""Runs that other results folders have: taken by their identity instead of measured (`runs_from`).

A run from there is read as strictly as a restored one and gets the mark `imported.json`.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path

from servelab.archive.contents import faults_of_run, faults_of_workload
from servelab.archive.restore import mark_import
from servelab.archive.unpack import reading
from servelab.core.errors import ConfigError, Outage, ServelabError
from servelab.core.files import move_folder
from servelab.core.identity import content_id
from servelab.core.result_lock import claim
from servelab.measure.run_folder import describe_faults

_RUN = re.compile(r"[0-9a-f]{20}")


class SharedRuns:
    """The runs of several results folders; of a run that several have, the first folder counts.

    `report` gets one line per run that cannot be used. A folder that cannot be read is a `ConfigError` when the first
    run is asked for.
    """

    def __init__(self, places: Sequence[str], results: Path, report: Callable[[str], None]) -> None:
        self._places, self._results, self._report = places, results, report
        self._unusable: set[str] = set()
        self._asked: set[str] = set()

    def has(self, run_id: str) -> bool:
        """Whether a place has the run, as far as its name says."""
        if run_id in self._unusable or run_id not in self._holders:
            return False
        self._asked.add(run_id)
        return True

    def lines(self) -> list[str]:
        """The number of runs that each place has, of those that were asked for."""
        counts = Counter(self._holders[run_id] for run_id in self._asked - self._unusable)
        return [
            f"{place}: has {count} of the missing runs, which are not measured again" for place, count in counts.items()
        ]

    def fetch(self, run_id: str) -> bool:
        """Puts a run below `results`, checked and marked; False, with one line, if what is there cannot be used.

        A place that cannot be reached, or a full disk, is an `Outage`.
        """
        if not self.has(run_id):
            return False
        place = self._holders[run_id]
        self._results.mkdir(parents=True, exist_ok=True)
        try:
            with reading(place), tempfile.TemporaryDirectory(prefix=".fetched-", dir=self._results) as folder:
                self._take(place, run_id, Path(folder))
        except Outage:
            raise
        except ServelabError as error:
            self._unusable.add(run_id)
            self._report(f"{error}; it is not taken from there")
            return False
        return True

    def _take(self, place: str, run_id: str, folder: Path) -> None:
        """Moves a run to its place; `ServelabError` says why it is not used."""
        source, run = Path(place).expanduser(), folder / "runs" / run_id
        _copy(source / "runs" / run_id, run)
        if faults := faults_of_run(run):
            raise ServelabError(describe_faults(run_id, faults))
        mark_import(run, run, {"archive": None, "archive_sha256": None, "study": None, "results_folder": place}, None)
        workload = "workloads/" + content_id(json.loads((run / "spec.json").read_bytes())["workload"])
        if (source / workload).is_dir() and not (self._results / workload).exists():
            _copy(source / workload, folder / workload)
            if not faults_of_workload(folder / workload):
                self._move(folder, workload)
        self._move(folder, f"runs/{run_id}")

    def _move(self, folder: Path, name: str) -> None:
        (self._results / name).parent.mkdir(parents=True, exist_ok=True)
        with claim(self._results / name):
            move_folder(folder / name, self._results / name)

    @cached_property
    def _holders(self) -> dict[str, str]:
        """Run → the place that has it."""
        found: dict[str, str] = {}
        for place in self._places:
            runs = Path(place).expanduser() / "runs"
            if not runs.is_dir():
                raise ConfigError(f"config/config.yaml: runs_from: {place}: is no results folder: it has no runs/")
            names = (path.name for path in runs.iterdir() if _RUN.fullmatch(path.name))
            found = dict.fromkeys(names, place) | found
        return found


def _copy(source: Path, folder: Path) -> None:
    """Copies the files of a folder."""
    folder.mkdir(parents=True)
    for path in filter(Path.is_file, source.iterdir()):
        shutil.copyfile(path, folder / path.name)
