"""Runs that other results folders and archives have: taken by their identity instead of measured (`runs_from`).

A place is a results folder, an archive, or a folder of archives, each also in a bucket of S3 (`s3://bucket/folder`,
read by pyarrow with what AWS's tools read from the environment). A run from there is read as strictly as a restored one
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

from pyarrow import fs

from servelab.archive.layout import KEY, RESULTS, ArchiveSignature, RunPlace, check_signature, signature_of
from servelab.archive.records import faults_of_run, faults_of_workload
from servelab.archive.restore import mark_import
from servelab.archive.unpack import open_archive, reading
from servelab.archive.verify import read_manifest
from servelab.core.errors import ConfigError, Outage, ServelabError
from servelab.core.files import move_folder
from servelab.core.identity import content_id, file_sha256
from servelab.core.result_lock import claim
from servelab.measure.run_folder import describe_faults

_RUN = re.compile(r"[0-9a-f]{20}")


class SharedRuns:
    """The runs of several places; of a run that several have, the first place counts.

    `kept` is a folder for archives that were fetched from a bucket; `report` gets one line per run that cannot be used.
    A place that cannot be read is a `ConfigError` when the first run is asked for.
    """

    def __init__(self, sources: Sequence[RunPlace], results: Path, kept: Path, report: Callable[[str], None]) -> None:
        self._sources, self._results, self._kept, self._report = sources, results, kept, report
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
                why = self._take(holder, run_id, Path(folder))
        except Outage:
            raise
        except ServelabError as error:
            why = str(error)
        except OSError as error:
            raise Outage(f"{holder.place}: run {run_id} cannot be fetched: {error}") from error
        if why:
            self._unusable.add(run_id)
            self._report(f"{why}; it is not taken from there")
        return not why

    def _take(self, holder: _ResultsFolder | _ArchiveFile, run_id: str, folder: Path) -> str:
        """Moves a run to its place; why it is not used, or an empty text."""
        run = folder / "runs" / run_id
        holder.copy(f"runs/{run_id}", run)
        if faults := faults_of_run(run):
            return f"{holder.place}: {describe_faults(run_id, faults)}"
        mark_import(run, run, holder.origin, holder.signature)
        workload = "workloads/" + content_id(json.loads((run / "spec.json").read_bytes())["workload"])
        if not (self._results / workload).exists():
            with suppress(FileNotFoundError):  # then it is made here
                holder.copy(workload, folder / workload)
                if not faults_of_workload(folder / workload):
                    self._move(folder, workload)
        self._move(folder, f"runs/{run_id}")
        return ""

    def _move(self, folder: Path, name: str) -> None:
        (self._results / name).parent.mkdir(parents=True, exist_ok=True)
        with claim(self._results / name):
            move_folder(folder / name, self._results / name)

    @cached_property
    def _holders(self) -> dict[str, _ResultsFolder | _ArchiveFile]:
        found: dict[str, _ResultsFolder | _ArchiveFile] = {}
        for source in self._sources:
            try:
                for holder in self._open(source):
                    for run_id in holder.run_ids():
                        found.setdefault(run_id, holder)
            except (OSError, ValueError) as error:
                raise ConfigError(f"config/config.yaml: {KEY}: {source.place}: cannot be read: {error}") from None
        return found

    def _open(self, source: RunPlace) -> Iterator[_ResultsFolder | _ArchiveFile]:
        if source.place.startswith("s3://"):
            files, path = fs.FileSystem.from_uri(source.place)
        else:
            files, path = fs.LocalFileSystem(), str(Path(source.place).expanduser().resolve())
        info = files.get_file_info(path)
        if info.type == fs.FileType.File:
            yield self._archive(source, files, info, source.place)
            return
        inside = {entry.base_name: entry for entry in _entries(files, path)}
        if "runs" in inside:
            yield _ResultsFolder(source, files, path)
            return
        archives = [entry for name, entry in sorted(inside.items()) if name.endswith(".zip")]
        if not archives:
            raise ConfigError(
                f"config/config.yaml: {KEY}: {source.place}: is no results folder (it has no runs/), and has no archive"
            )
        for entry in archives:
            yield self._archive(source, files, entry, f"{source.place.rstrip('/')}/{entry.base_name}")

    def _archive(self, source: RunPlace, files: fs.FileSystem, info: fs.FileInfo, place: str) -> _ArchiveFile:
        if isinstance(files, fs.LocalFileSystem):
            return _ArchiveFile(source, Path(info.path), place)
        folder = self._kept / content_id([place, info.size, str(info.mtime)])
        file = folder / info.base_name
        for name in (signature_of(file).name, file.name):  # the archive last: it says that both are there
            if not (folder / name).exists():
                folder.mkdir(parents=True, exist_ok=True)
                with suppress(FileNotFoundError):
                    _copy(files, f"{info.path.removesuffix(info.base_name)}{name}", folder / f".{name}")
                    (folder / f".{name}").replace(folder / name)
        return _ArchiveFile(source, file, place)


class _ResultsFolder:
    """A results folder with runs; `place` is its name in messages."""

    signature: ArchiveSignature | None = None

    def __init__(self, source: RunPlace, files: fs.FileSystem, path: str) -> None:
        if source.allowed_signers:
            raise ConfigError(f"config/config.yaml: {KEY}: {source.place}: only archives are signed; name their folder")
        self.place, self._files, self._path = source.place, files, path
        self.origin = {"archive": None, "archive_sha256": None, "study": None, "results_folder": self.place}

    def run_ids(self) -> list[str]:
        names = (entry.base_name for entry in _entries(self._files, f"{self._path}/runs"))
        return [name for name in names if _RUN.fullmatch(name)]

    def copy(self, name: str, folder: Path) -> None:
        """Copies a folder's files, `runs/<id>` or `workloads/<id>`; `FileNotFoundError` if it is not there."""
        entries = _entries(self._files, f"{self._path}/{name}")
        folder.mkdir(parents=True)
        for entry in entries:
            if entry.type == fs.FileType.File:
                _copy(self._files, entry.path, folder / entry.base_name)


class _ArchiveFile:
    """An archive with runs, as `_ResultsFolder`."""

    def __init__(self, source: RunPlace, path: Path, place: str) -> None:
        self.place, self._path = place, path
        self.signature = check_signature(path, source.allowed_signers)
        if source.allowed_signers and self.signature.faults:
            raise ConfigError(f"config/config.yaml: {KEY}: {self.signature.faults[0]}")
        with open_archive(path) as archive, reading(place):
            self._manifest = read_manifest(archive)
            self._names = list(archive.members)

    @cached_property
    def origin(self) -> dict[str, Any]:
        return {
            "archive": self._path.name,
            "archive_sha256": file_sha256(self._path),
            "study": self._manifest.study,
            "results_folder": None,
        }

    def run_ids(self) -> list[str]:
        parts = (name.split("/") for name in self._names if name.startswith(f"{RESULTS}/runs/"))
        return list(dict.fromkeys(found[2] for found in parts if len(found) == 4 and _RUN.fullmatch(found[2])))

    def copy(self, name: str, folder: Path) -> None:
        members = [member for member in self._names if member.startswith(f"{RESULTS}/{name}/")]
        if not members:
            raise FileNotFoundError(name)
        above = folder.parents[1] / ".members"
        above.mkdir(exist_ok=True)
        with open_archive(self._path) as archive:
            archive.write(above, members)
        for member in members:
            listed = self._manifest.members.get(member)
            if listed is None or file_sha256(above / member) != listed.sha256:
                raise ServelabError(f"{self.place}: {member}: is not what the archive's manifest lists")
        folder.parent.mkdir(parents=True, exist_ok=True)
        (above / RESULTS / name).rename(folder)


def _entries(files: fs.FileSystem, path: str) -> list[fs.FileInfo]:
    """What is in a folder; `FileNotFoundError` if there is none."""
    return list(files.get_file_info(fs.FileSelector(path)))


def _copy(files: fs.FileSystem, path: str, destination: Path) -> None:
    with files.open_input_stream(path) as stream, destination.open("xb") as file:
        shutil.copyfileobj(stream, file)
