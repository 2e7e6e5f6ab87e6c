"""Restores an archive's runs and tables into a results folder, after it was verified: nothing is overwritten."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from servelab.archive.layout import LIVE, RESULTS, ArchiveSignature, Manifest, check_signature, files_below, opened
from servelab.archive.verify import verified
from servelab.core.errors import ServelabError
from servelab.core.files import move_folder
from servelab.core.identity import file_sha256
from servelab.core.result_lock import claim
from servelab.core.seal import IMPORTED
from servelab.measure.run_files import Import, ImportedRun, read_import
from servelab.report.measured_runs import MeasuredRuns
from servelab.report.render import RENDERED, render_again

_SHOWN = 5


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


def restore_archive(path: Path, results: Path, code: Path, allowed_signers: Path | None = None) -> Restored:
    """Verifies an archive with the workflow in `code`, and then writes what is missing below `results`.

    Raises `ServelabError` with the reasons, before anything is written, if it does not verify; otherwise as
    `restore_unpacked`.
    """
    signature = check_signature(path, allowed_signers)
    results.mkdir(parents=True, exist_ok=True)
    with verified(path, code, results) as (found, folder):
        _refuse(f"{path}: does not verify", [*signature.faults, *found.faults])
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
    kept = (f"{RESULTS}/runs/", f"{RESULTS}/workloads/", manifest.folder)
    below = {name.removeprefix(f"{RESULTS}/"): each for name, each in manifest.members.items() if name.startswith(kept)}
    members = {name: each for name, each in below.items() if not _is_made_here(name)}
    with claim(results / manifest.search, wait=False):
        there = [name for name in members if (results / name).exists()]
        # a redacted member cannot be compared
        plain = [name for name in there if not members[name].redacted]
        other = [str(results / name) for name in plain if file_sha256(results / name) != members[name].sha256]
        fix = ". Move it away, or restore into another folder with --results"
        _refuse(f"{origin['archive']}: already there with another content", other, fix)
        begun = {*map(_raw_folder, there)} - {""}
        missing = sorted(name for name in members.keys() - set(there) if _raw_folder(name) not in begun)
        entries = list(dict.fromkeys(filter(None, map(_raw_folder, missing))))
        runs = [entry.removeprefix("runs/") for entry in entries if entry.startswith("runs/")]
        for run_id in runs:
            mark_import(folder / RESULTS / "runs" / run_id, results / "runs" / run_id, origin, signature)
        _move(folder / RESULTS, results, missing, entries, manifest)
    if manifest.is_live:
        render_again(results, manifest.search, MeasuredRuns(results / "runs", manifest.study))
    return Restored(manifest, len(missing), len(there), runs, signature)


def is_archive(path: Path) -> bool:
    """Whether a path is that of an archive."""
    return path.suffix == ".zip" and path.is_file()


def unpacked_study(path: Path, folder: Path) -> Path:
    """The study of an archive, unpacked into `folder`; each file is as the manifest lists it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with opened(path, folder) as (manifest, content, faults):
        _refuse(str(path), faults)
        (content / RESULTS).rename(folder / RESULTS)
    return folder / manifest.folder


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


def _move(source: Path, results: Path, names: Iterable[str], entries: Iterable[str], manifest: Manifest) -> None:
    """Moves the unpacked files to their places: raw records (`entries`) first, each folder of them in one step.

    A folder that another workflow made meanwhile is kept. Snakemake compares times: raw records get the archive's day,
    and everything made from them gets one later time.
    """
    day = datetime.fromisoformat(manifest.date).replace(tzinfo=UTC).timestamp()
    for entry in entries:
        for file in files_below(source / entry):
            os.utime(file, (day, day))
        with claim(results / entry):
            (results / entry).parent.mkdir(exist_ok=True)
            move_folder(source / entry, results / entry)
    now = time.time()
    made = [results / name for name in names if not _raw_folder(name)]
    for destination in made:
        destination.parent.mkdir(parents=True, exist_ok=True)
        (source / destination.relative_to(results)).rename(destination)
    for path in {*made, *(destination.parent for destination in made)}:  # a folder of charts is an output too
        os.utime(path, (now, now))


def _raw_folder(name: str) -> str:
    """The folder of a raw record, `runs/<id>` or `workloads/<id>`, which appears in one step; else an empty text."""
    return "/".join(name.split("/")[:2]) if name.startswith(("runs/", "workloads/")) else ""
