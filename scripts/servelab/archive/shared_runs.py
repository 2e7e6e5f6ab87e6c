"""Runs that other results folders and archives have: taken by their identity instead of measured (`runs_from`).

A place is a results folder, an archive, or a folder of archives. A run from there is read as strictly as a restored one
and gets the mark `imported.json`.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from servelab.archive.layout import (
    KEY,
    RESULTS,
    ArchiveSignature,
    RunPlace,
    check_signature,
    read_manifest,
)
from servelab.archive.records import faults_of_run, faults_of_workload
from servelab.archive.restore import mark_import
from servelab.archive.unpack import open_archive, reading
from servelab.core.errors import ConfigError, Outage, ServelabError
from servelab.core.files import move_folder
from servelab.core.identity import content_id, file_sha256
from servelab.core.result_lock import claim
from servelab.measure.run_folder import describe_faults

_RUN = re.compile(r"[0-9a-f]{20}")


class SharedRuns:
    """The runs of several places; of a run that several have, the first place counts.

    `report` gets one line per run that cannot be used. A place that cannot be read is a `ConfigError` when the first
    run is asked for.
    """

    def __init__(self, sources: Sequence[RunPlace], results: Path, report: Callable[[str], None]) -> None:
        self._sources, self._results, self._report = sources, results, report
        self._unusable: set[str] = set()
        self._asked: set[str] = set()

    def has(self, run_id: str) -> bool:
        """Whether a place has the run, as far as its name says."""
        if run_id in self._unusable or run_id not in self._holders:
            return False
        self._asked.add(run_id)
        return True

    def lines(self) -> list[str]:
        """How many of the runs that were asked for each place has."""
        counts = Counter(self._holders[run_id].place for run_id in self._asked - self._unusable)
        return [
            f"{place}: has {count} of the missing runs, which are not measured again" for place, count in counts.items()
        ]

    def fetch(self, run_id: str) -> bool:
        """Puts a run below `results`, checked and marked; False, with one line, if what is there cannot be used.

        A place that cannot be reached, or a full disk, is an `Outage`.
        """
        if not self.has(run_id):
            return False
        holder = self._holders[run_id]
        self._results.mkdir(parents=True, exist_ok=True)
        try:
            with tempfile.TemporaryDirectory(prefix=".fetched-", dir=self._results) as folder, reading(holder.place):
                self._take(holder, run_id, Path(folder))
        except Outage:
            raise
        except ServelabError as error:
            self._unusable.add(run_id)
            self._report(f"{error}; it is not taken from there")
            return False
        except OSError as error:
            raise Outage(f"{holder.place}: run {run_id} cannot be fetched: {error}") from error
        return True

    def _take(self, holder: _ResultsFolder | _ArchiveFile, run_id: str, folder: Path) -> None:
        """Moves a run to its place; `ServelabError` says why it is not used."""
        run = folder / "runs" / run_id
        holder.copy(f"runs/{run_id}", run)
        if faults := faults_of_run(run):
            raise ServelabError(describe_faults(run_id, faults))
        mark_import(run, run, holder.origin, holder.signature)
        workload = "workloads/" + content_id(json.loads((run / "spec.json").read_bytes())["workload"])
        if not (self._results / workload).exists():
            with suppress(FileNotFoundError):  # then it is made here
                holder.copy(workload, folder / workload)
                if not faults_of_workload(folder / workload):
                    self._move(folder, workload)
        self._move(folder, f"runs/{run_id}")

    def _move(self, folder: Path, name: str) -> None:
        (self._results / name).parent.mkdir(parents=True, exist_ok=True)
        with claim(self._results / name):
            move_folder(folder / name, self._results / name)

    @cached_property
    def _holders(self) -> dict[str, _ResultsFolder | _ArchiveFile]:
        found: dict[str, _ResultsFolder | _ArchiveFile] = {}
        for source in self._sources:
            try:
                for holder in _open(source):
                    found = dict.fromkeys(holder.run_ids(), holder) | found
            except OSError as error:
                raise ConfigError(f"config/config.yaml: {KEY}: {source.place}: cannot be read: {error}") from None
        return found


def _open(source: RunPlace) -> Iterator[_ResultsFolder | _ArchiveFile]:
    path = Path(source.place).expanduser()
    if path.is_file():
        yield _ArchiveFile(source, path)
    elif (path / "runs").is_dir():
        yield _ResultsFolder(source, path)
    elif archives := sorted(path.glob("*.zip")):
        yield from (_ArchiveFile(source, archive) for archive in archives)
    else:
        why = "is no archive, no results folder (it has no runs/), and has no archive"
        raise ConfigError(f"config/config.yaml: {KEY}: {source.place}: {why}")


class _ResultsFolder:
    """A results folder with runs; `place` is its name in messages."""

    signature: ArchiveSignature | None = None

    def __init__(self, source: RunPlace, path: Path) -> None:
        if source.allowed_signers:
            raise ConfigError(f"config/config.yaml: {KEY}: {source.place}: only archives are signed; name their folder")
        self.place, self._path = source.place, path
        self.origin = {"archive": None, "archive_sha256": None, "study": None, "results_folder": self.place}

    def run_ids(self) -> list[str]:
        return [path.name for path in (self._path / "runs").iterdir() if _RUN.fullmatch(path.name)]

    def copy(self, name: str, folder: Path) -> None:
        """Copies a folder's files, `runs/<id>` or `workloads/<id>`; `FileNotFoundError` if it is not there."""
        files = [path for path in (self._path / name).iterdir() if path.is_file()]
        folder.mkdir(parents=True)
        for path in files:
            shutil.copyfile(path, folder / path.name)


class _ArchiveFile:
    """An archive with runs, as `_ResultsFolder`."""

    def __init__(self, source: RunPlace, path: Path) -> None:
        self.place, self._path = str(path), path
        self.signature = check_signature(path, source.allowed_signers)
        if self.signature.faults:
            raise ConfigError(f"config/config.yaml: {KEY}: {self.signature.faults[0]}")
        with open_archive(path) as archive, reading(self.place):
            self._manifest = read_manifest(archive)

    @cached_property
    def origin(self) -> dict[str, Any]:
        digest = file_sha256(self._path)
        return {"archive": self._path.name, "archive_sha256": digest, "study": self._manifest.study}

    def run_ids(self) -> list[str]:
        parts = (name.split("/") for name in self._manifest.members if name.startswith(f"{RESULTS}/runs/"))
        return list(dict.fromkeys(found[2] for found in parts if len(found) == 4 and _RUN.fullmatch(found[2])))

    def copy(self, name: str, folder: Path) -> None:
        members = [member for member in self._manifest.members if member.startswith(f"{RESULTS}/{name}/")]
        if not members:
            raise FileNotFoundError(name)
        above = folder.parents[1] / ".members"
        above.mkdir(exist_ok=True)
        with open_archive(self._path) as archive:
            archive.write(above, members)
        for member in members:
            if file_sha256(above / member) != self._manifest.members[member].sha256:
                raise ServelabError(f"{member}: is not what the archive's manifest lists")
        folder.parent.mkdir(parents=True, exist_ok=True)
        (above / RESULTS / name).rename(folder)
