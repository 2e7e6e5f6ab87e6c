"""Restores an archive's runs and tables into a results folder, after it was verified: nothing is overwritten."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from servelab.archive.layout import RESULTS, Manifest
from servelab.archive.record_faults import faults_of_run, faults_of_workload
from servelab.archive.signatures import ArchiveSignature, check_signature
from servelab.archive.unpack import open_archive, unpacked
from servelab.archive.untrusted import reading
from servelab.archive.verify import member_faults, read_manifest, verify_archive
from servelab.core.errors import ServelabError
from servelab.core.files import move_folder
from servelab.core.identity import file_sha256
from servelab.core.result_lock import claim
from servelab.core.seal import IMPORTED, STATUS
from servelab.core.ssh_signature import BadSignatureError
from servelab.measure.run_files import Import, ImportedRun, check_run, is_signed, read_import
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
    """Runs that were written, wholly or in part, by id: each has the mark `imported.json`."""
    signature: ArchiveSignature


@dataclass(frozen=True)
class Verified:
    """An archive that was verified."""

    path: Path
    sha256: str
    signature: ArchiveSignature
    allowed_signers: Path | None = None
    """The reader's file of keys."""


def restore_archive(path: Path, results: Path, code: Path, allowed_signers: Path | None = None) -> Restored:
    """Verifies an archive with the workflow in `code`, and then writes what is missing below `results`.

    Raises `ServelabError` with the reasons, before anything is written, if it does not verify; otherwise as
    `restore_verified`.
    """
    sha256 = _sha256(path)
    signature = check_signature(path, allowed_signers)
    faults = signature.faults or verify_archive(path, code).faults
    if faults:
        raise ServelabError(f"{path}: does not verify: {_listed(faults, '; ')}; nothing was restored")
    return restore_verified(Verified(path, sha256, signature, allowed_signers), results)


def restore_verified(verified: Verified, results: Path) -> Restored:
    """Writes what is missing below `results`; logs of jobs are not restored, and live reports are rendered again.

    Raises `ServelabError`, before anything is written, if the archive no longer has this `sha256`, if a run cannot be
    used, or if a file exists with another content. Raises `Outage` if another workflow is making the study.
    """
    path = verified.path
    with open_archive(path) as archive, reading(str(path)), ExitStack() as claims:
        manifest = read_manifest(archive)
        if faults := list(member_faults(archive, manifest)):
            raise ServelabError(f"{path}: {_listed(faults, '; ')}; nothing was restored")
        names = [name for name in manifest.members if manifest.is_restored(name) and not _is_made_here(name)]
        for search in manifest.searches:
            claims.enter_context(claim(results / search, wait=False))
        there = [name for name in names if (results / _below(name)).exists()]
        if conflicts := [name for name in there if not _is_same(manifest, name, results)]:
            listed = _listed([str(results / _below(name)) for name in conflicts], ", ")
            raise ServelabError(
                f"{path}: {listed}: already there with another content; nothing was "
                "restored. Move it away, or restore into another folder with --results"
            )
        missing = sorted(set(names) - set(there))
        entries = list(dict.fromkeys(entry for name in missing if (entry := _raw_folder(name))))
        # all of a run is checked, also what is there already
        needed = {name for name in manifest.members if _raw_folder(name) in entries} | set(missing)
        with unpacked(archive, results, sorted(needed)) as folder:
            if _sha256(path) != verified.sha256:
                raise ServelabError(f"{path}: was changed while it was verified; nothing was restored")
            source = folder / RESULTS
            faults = [f"{RESULTS}/{entry}/{fault}" for entry in entries for fault in _faults(source / entry)]
            imported = [entry.partition("/")[2] for entry in entries if entry.startswith("runs/")]
            for run_id in imported if not faults else ():
                try:
                    _mark(source / "runs" / run_id, results / "runs" / run_id, verified, manifest)
                except BadSignatureError as error:
                    faults.append(f"{RESULTS}/runs/{run_id}/{error}")
            if faults:
                raise ServelabError(f"{path}: {_listed(faults, '; ')}; nothing was restored")
            begun = {entry for name in there if (entry := _raw_folder(name))}
            _move(source, results, missing, {entry: entry in begun for entry in entries}, manifest)
        for search in manifest.searches:
            if search.startswith("studies/"):
                _render(results, search, manifest)
    return Restored(manifest, len(missing), len(there), imported, verified.signature)


def _below(name: str) -> str:
    return name.removeprefix(f"{RESULTS}/")


def _is_made_here(name: str) -> bool:
    """Whether a member is not restored but made here: marks of imports, and live reports, which show these marks."""
    kind, _, *rest = _below(name).split("/")
    return (kind == "runs" and rest == [IMPORTED]) or (kind == "studies" and bool(rest) and rest[0] in RENDERED)


def _is_same(manifest: Manifest, name: str, results: Path) -> bool:
    """Whether an existing file may be the archive's; a redacted member cannot be compared."""
    member = manifest.members[name]
    return member.redacted or file_sha256(results / _below(name)) == member.sha256


def _faults(folder: Path) -> list[str]:
    return faults_of_run(folder) if folder.parent.name == "runs" else faults_of_workload(folder)


def _mark(unpacked_run: Path, run: Path, verified: Verified, manifest: Manifest) -> None:
    """Adds this import to those that the run, or else the archive, knows of; a run's signature must count."""
    signed_by = None
    if verified.allowed_signers and is_signed(unpacked_run):
        signed_by = str(check_run(unpacked_run, verified.allowed_signers).signer)
    mark = Import(
        archive=verified.path.name,
        archive_sha256=verified.sha256,
        study=manifest.study,
        imported_at=datetime.now(UTC).isoformat(timespec="seconds"),
        archive_signed_by=str(signer) if (signer := verified.signature.signer) else None,
        run_signed_by=signed_by,
    )
    earlier = read_import(run) or read_import(unpacked_run)
    imports = [*(earlier.imports if earlier else []), mark]
    ImportedRun(run_id=unpacked_run.name, imports=imports).write(unpacked_run / IMPORTED)


def _move(source: Path, results: Path, names: Sequence[str], entries: Mapping[str, bool], manifest: Manifest) -> None:
    """Moves the unpacked files to their places: raw records first, each folder of them in one step.

    `entries` are the folders of raw records, each with whether a part of it was there; one that another workflow made
    meanwhile is kept. Snakemake compares times: raw records get the archive's day, and everything made from them gets
    one later time.
    """
    day = datetime.fromisoformat(manifest.date).replace(tzinfo=UTC).timestamp()
    for entry, is_begun in entries.items():
        for file in _files(source / entry):
            os.utime(file, (day, day))
        with claim(results / entry):
            (results / entry).parent.mkdir(exist_ok=True)
            if not move_folder(source / entry, results / entry) and is_begun:
                _complete(source / entry, results / entry)
    now = time.time()
    made = [results / _below(name) for name in names if _raw_folder(name) is None]
    for destination in made:
        _move_file(source / destination.relative_to(results), destination)
        os.utime(destination, (now, now))
    for folder in {destination.parent for destination in made}:  # a folder of charts is an output too
        os.utime(folder, (now, now))


def _complete(source: Path, destination: Path) -> None:
    """Moves what a folder lacks into it: the mark first, so that no run is ever without it; status.json last."""
    order = {IMPORTED: 0, STATUS: 2}
    for file in sorted(_files(source), key=lambda file: (order.get(file.name, 1), file)):
        place = destination / file.relative_to(source)
        if file.name == IMPORTED:
            file.replace(place)
        else:
            _move_file(file, place)


def _raw_folder(name: str) -> str | None:
    results, *parts = name.split("/")
    return "/".join(parts[:2]) if results == RESULTS and parts and parts[0] in _RAW else None


def _move_file(file: Path, destination: Path) -> None:
    destination.parent.mkdir(parents=True, exist_ok=True)
    if not destination.exists():
        file.rename(destination)


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file())


def _render(results: Path, search: str, manifest: Manifest) -> None:
    """Renders a live report, which then shows which runs were imported."""
    study = search.partition("/")[2]
    other = f"recorded/{study}"
    render_live_report(results, study, results / other if other in manifest.searches else None)


def _sha256(path: Path) -> str:
    try:
        return file_sha256(path)
    except OSError as error:
        raise ServelabError(f"{path}: cannot be read: {error.strerror}") from None


def _listed(found: Sequence[str], between: str) -> str:
    more = f" (and {len(found) - _SHOWN} more)" if len(found) > _SHOWN else ""
    return between.join(found[:_SHOWN]) + more
