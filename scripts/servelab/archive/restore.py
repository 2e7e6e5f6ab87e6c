"""Runs that were measured elsewhere: an archive's, after it was verified, and those of other results folders.

Nothing is overwritten, and each run that is taken gets the mark `imported.json`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from servelab.archive.contents import faults_of_run, faults_of_workload
from servelab.archive.layout import RESULTS, ArchiveSignature, Manifest, check_signature, files_below, reading
from servelab.archive.verify import verified
from servelab.core.errors import ConfigError, Outage, ServelabError
from servelab.core.files import move_folder
from servelab.core.identity import content_id, file_sha256
from servelab.core.result_lock import claim
from servelab.core.seal import IMPORTED
from servelab.measure.run_files import Import, ImportedRun, read_import
from servelab.measure.run_folder import describe_faults
from servelab.report.measured_runs import MeasuredRuns
from servelab.report.render import RENDERED, render_again
from servelab.study.project import LIVE

_SHOWN = 5
_RUN = re.compile(r"[0-9a-f]{20}")


@dataclass(frozen=True)
class Restored:
    """The numbers of an archive's files that were written, and that existed."""

    manifest: Manifest
    written: int
    there: int
    """Files that existed and stay unchanged."""
    imported: list[str]
    """Runs that were written, by id: each has the mark `imported.json`."""
    signature: ArchiveSignature


def restore_archive(
    path: Path, results: Path, code: Path, allowed_signers: Path | None = None, *, accepts_unsigned: bool = False
) -> Restored:
    """Verifies an archive with the workflow in `code`, and then writes what is missing below `results`.

    Raises `ServelabError` with the reasons, before anything is written, if `servelab verify` would not accept it;
    otherwise as `restore_unpacked`.
    """
    signature = check_signature(path, allowed_signers)
    _refuse(str(path), signature.refusals(accepts_unsigned=accepts_unsigned))
    results.mkdir(parents=True, exist_ok=True)
    with verified(path, code, results) as (found, folder):
        _refuse(f"{path}: does not verify", found.faults)
        origin = {"archive": path.name, "archive_sha256": file_sha256(path), "study": found.manifest.study}
        return restore_unpacked(folder, found.manifest, origin, signature, results)


def restore_unpacked(
    folder: Path, manifest: Manifest, origin: Mapping[str, Any], signature: ArchiveSignature, results: Path
) -> Restored:
    """Moves what is missing below `results`: a run's folder that is there stays as it is, and live reports are
    rendered again.

    Raises `ServelabError`, before anything is written, if a file exists with another content, and `Outage` if another
    workflow is making the study.
    """
    below = {name.partition("/")[2]: each for name, each in manifest.members.items() if name.startswith(f"{RESULTS}/")}
    members = {name: each for name, each in below.items() if not _is_made_here(name)}
    with claim(results / manifest.search, wait=False):
        there = [name for name in members if (results / name).exists()]
        plain = (name for name in there if not members[name].redacted)  # a redacted member cannot be compared
        other = [str(results / name) for name in plain if file_sha256(results / name) != members[name].sha256]
        fix = ". Move it away, or restore into another folder with --results"
        _refuse(f"{origin['archive']}: already there with another content", other, fix)
        begun = {*map(_raw_folder, there)} - {""}
        missing = sorted(name for name in members.keys() - set(there) if _raw_folder(name) not in begun)
        entries = list(dict.fromkeys(filter(None, map(_raw_folder, missing))))
        runs = [entry.removeprefix("runs/") for entry in entries if entry.startswith("runs/")]
        for run_id in runs:
            mark_import(folder / RESULTS / "runs" / run_id, results / "runs" / run_id, origin, signature)
        # Snakemake compares times: raw records get the archive's day, and all made from them one later time
        day, now = datetime.fromisoformat(manifest.date).replace(tzinfo=UTC).timestamp(), time.time()
        for entry in entries:
            for file in files_below(folder / RESULTS / entry):
                os.utime(file, (day, day))
            _move(folder / RESULTS, results, entry)
        made = [results / name for name in missing if not _raw_folder(name)]
        for path in made:
            path.parent.mkdir(parents=True, exist_ok=True)
            (folder / RESULTS / path.relative_to(results)).rename(path)
        for path in {*made, *(path.parent for path in made)}:  # a folder of charts is an output too
            os.utime(path, (now, now))
    if manifest.is_live:
        render_again(results, manifest.search, MeasuredRuns(results / "runs"))
    return Restored(manifest, len(missing), len(there), runs, signature)


def mark_import(run: Path, known: Path, origin: Mapping[str, Any], signature: ArchiveSignature | None) -> None:
    """Adds an import to those that the folder `known`, or else the unpacked run, has."""
    mark = Import(
        **origin,
        imported_at=datetime.now(UTC).isoformat(timespec="seconds"),
        archive_signed_by=str(signature.signer) if signature and signature.signer else None,
    )
    earlier = read_import(known) or read_import(run)
    ImportedRun(run_id=run.name, imports=[*(earlier.imports if earlier else []), mark]).write(run / IMPORTED)


def _refuse(what: str, faults: Sequence[str], fix: str = "") -> None:
    if faults:
        more = f" (and {len(faults) - _SHOWN} more)" if len(faults) > _SHOWN else ""
        raise ServelabError(f"{what}: {'; '.join(faults[:_SHOWN])}{more}; nothing was restored{fix}")


def _is_made_here(name: str) -> bool:
    """Whether a member is not restored but made here: marks of imports, and live reports, which show these marks."""
    kind, _, *rest = name.split("/")
    return (kind == "runs" and rest == [IMPORTED]) or (kind == LIVE and bool(rest) and rest[0] in RENDERED)


def _raw_folder(name: str) -> str:
    """The folder of a raw record, `runs/<id>` or `workloads/<id>`, which appears in one step; else an empty text."""
    return "/".join(name.split("/")[:2]) if name.startswith(("runs/", "workloads/")) else ""


def _move(source: Path, results: Path, entry: str) -> None:
    """Moves the folder of a raw record to its place; one that another workflow made meanwhile is kept."""
    (results / entry).parent.mkdir(parents=True, exist_ok=True)
    with claim(results / entry):
        move_folder(source / entry, results / entry)


class SharedRuns:
    """Runs that other results folders have: taken by their identity instead of measured (`runs_from`).

    Of a run that several have, the first folder counts. `report` gets one line per run that cannot be used. A folder
    that cannot be read is a `ConfigError` when the first run is asked for.
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
                _move(folder, self._results, workload)
        _move(folder, self._results, f"runs/{run_id}")

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
