"""Restores an archive's runs and tables into a results folder, after it was verified: nothing is overwritten."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from servelab.archive.layout import LIVE, RESULTS, ArchiveSignature, Manifest, check_signature
from servelab.archive.records import faults_of_run, faults_of_workload
from servelab.archive.unpack import open_archive, reading, unpacked
from servelab.archive.verify import member_faults, read_manifest, verify_archive
from servelab.core.errors import ServelabError
from servelab.core.files import move_folder
from servelab.core.identity import file_sha256
from servelab.core.result_lock import claim
from servelab.core.seal import IMPORTED
from servelab.measure.run_files import Import, ImportedRun, read_import
from servelab.report.render import RENDERED, render_live_report

_RAW = ("runs", "workloads")
"""Folders whose subfolders appear in one step, each complete."""
_SHOWN = 5


@dataclass(frozen=True)
class Restored:
    """How many of an archive's files were written, and how many existed."""

    manifest: Manifest
    written: int
    there: int
    """Files that existed and stay unchanged."""
    imported: list[str]
    """Runs that were written, by id: each has the mark `imported.json`."""
    signature: ArchiveSignature


def restore_archive(path: Path, results: Path, code: Path, allowed_signers: Path | None = None) -> Restored:
    """Verifies an archive with the workflow in `code`, and then writes what is missing below `results`.

    Raises `ServelabError` with the reasons, before anything is written, if it does not verify; otherwise as
    `restore_verified`.
    """
    with reading(str(path)):
        sha256 = file_sha256(path)
    signature = check_signature(path, allowed_signers)
    _refuse(f"{path}: does not verify", signature.faults or verify_archive(path, code).faults)
    return restore_verified(path, sha256, signature, results)


def restore_verified(path: Path, sha256: str, signature: ArchiveSignature, results: Path) -> Restored:
    """Writes what is missing below `results`: a run's folder that is there stays as it is, logs of jobs are not
    restored, and live reports are rendered again.

    Raises `ServelabError`, before anything is written, if the archive no longer has this `sha256`, if a run cannot be
    used, or if a file exists with another content. Raises `Outage` if another workflow is making the study.
    """
    with open_archive(path) as archive, reading(str(path)), ExitStack() as claims:
        manifest = read_manifest(archive)
        _refuse(str(path), list(member_faults(archive, manifest)))
        names = [name for name in manifest.members if manifest.is_restored(name) and not _is_made_here(name)]
        for search in manifest.searches:
            claims.enter_context(claim(results / search, wait=False))
        there = [name for name in names if (results / _below(name)).exists()]
        conflicts = [str(results / _below(name)) for name in there if not _is_same(manifest, name, results)]
        fix = "Move it away, or restore into another folder with --results"
        _refuse(f"{path}: already there with another content", conflicts, fix)
        begun = {_raw_folder(name) for name in there} - {None}
        missing = sorted(name for name in set(names) - set(there) if _raw_folder(name) not in begun)
        entries = list(dict.fromkeys(entry for name in missing if (entry := _raw_folder(name))))
        imported = [entry.partition("/")[2] for entry in entries if entry.startswith("runs/")]
        marks = [name for name in manifest.members if _raw_folder(name) in entries and _is_made_here(name)]
        with unpacked(archive, results, [*missing, *marks]) as folder:
            if file_sha256(path) != sha256:
                raise ServelabError(f"{path}: was changed while it was verified; nothing was restored")
            source = folder / RESULTS
            faults = [f"{RESULTS}/{entry}/{fault}" for entry in entries for fault in _faults(source / entry)]
            _refuse(str(path), faults)
            origin = {"archive": path.name, "archive_sha256": sha256, "study": manifest.study}
            for run_id in imported:
                mark_import(source / "runs" / run_id, results / "runs" / run_id, origin, signature)
            _move(source, results, missing, entries, manifest)
        for search in manifest.searches:
            if search.startswith(f"{LIVE}/"):
                render_live_report(results, search.partition("/")[2])
    return Restored(manifest, len(missing), len(there), imported, signature)


def is_archive(path: Path) -> bool:
    """Whether a path is that of an archive."""
    return path.suffix == ".zip" and path.is_file()


def unpacked_study(path: Path, folder: Path) -> Path:
    """The study of an archive, unpacked into `folder`; each file is as the manifest lists it."""
    with open_archive(path) as archive, reading(str(path)):
        manifest = read_manifest(archive)
        _refuse(str(path), list(member_faults(archive, manifest)))
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        archive.write(folder, [name for name in manifest.members if name.startswith(f"{RESULTS}/")])
    return folder / RESULTS / manifest.searches[0]


def mark_import(
    run: Path,
    known: Path,
    origin: Mapping[str, Any],
    signature: ArchiveSignature | None,
) -> None:
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
        listed = "; ".join(faults[:_SHOWN])
        raise ServelabError(f"{what}: {listed}{more}; nothing was restored{f'. {fix}' * bool(fix)}")


def _below(name: str) -> str:
    return name.removeprefix(f"{RESULTS}/")


def _is_made_here(name: str) -> bool:
    """Whether a member is not restored but made here: marks of imports, and live reports, which show these marks."""
    kind, _, *rest = _below(name).split("/")
    return (kind == "runs" and rest == [IMPORTED]) or (kind == LIVE and bool(rest) and rest[0] in RENDERED)


def _is_same(manifest: Manifest, name: str, results: Path) -> bool:
    """Whether an existing file may be the archive's; a redacted member cannot be compared."""
    member = manifest.members[name]
    return member.redacted or file_sha256(results / _below(name)) == member.sha256


def _faults(folder: Path) -> list[str]:
    return faults_of_run(folder) if folder.parent.name == "runs" else faults_of_workload(folder)


def _move(source: Path, results: Path, names: Sequence[str], entries: Sequence[str], manifest: Manifest) -> None:
    """Moves the unpacked files to their places: raw records (`entries`) first, each folder of them in one step.

    A folder that another workflow made meanwhile is kept. Snakemake compares times: raw records get the archive's day,
    and everything made from them gets one later time.
    """
    day = datetime.fromisoformat(manifest.date).replace(tzinfo=UTC).timestamp()
    for entry in entries:
        for file in (path for path in (source / entry).rglob("*") if path.is_file()):
            os.utime(file, (day, day))
        with claim(results / entry):
            (results / entry).parent.mkdir(exist_ok=True)
            move_folder(source / entry, results / entry)
    now = time.time()
    made = [results / _below(name) for name in names if _raw_folder(name) is None]
    for destination in made:
        destination.parent.mkdir(parents=True, exist_ok=True)
        (source / destination.relative_to(results)).rename(destination)
    for path in {*made, *(destination.parent for destination in made)}:  # a folder of charts is an output too
        os.utime(path, (now, now))


def _raw_folder(name: str) -> str | None:
    results, *parts = name.split("/")
    return "/".join(parts[:2]) if results == RESULTS and parts and parts[0] in _RAW else None
