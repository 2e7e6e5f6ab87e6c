"""Puts an archive's runs and tables back into a results folder, and overwrites nothing that is there."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from servelab.archive.layout import RESULTS, Manifest
from servelab.archive.unpack import open_archive, unpacked
from servelab.archive.verify import member_faults, read_manifest
from servelab.claims import claim
from servelab.errors import ServelabError
from servelab.files import move_folder
from servelab.identity import file_sha256

_RAW = ("runs", "pairs", "workloads")
"""Folders of folders that appear in one step, each complete."""
_SHOWN = 5


@dataclass(frozen=True)
class Restored:
    """What became of an archive's files."""

    manifest: Manifest
    written: int
    there: int
    """Files that were there already, and stay as they are."""


def restore_archive(path: Path, results: Path) -> Restored:
    """Writes what is missing below `results`; logs of jobs are not brought back.

    Raises `ServelabError`, before anything is written, where the archive is damaged, and where a run or a file of the
    study is there with another content. `Outage` where another workflow is making the study.
    """
    with open_archive(path) as archive, ExitStack() as claims:
        manifest = read_manifest(archive)
        if faults := list(member_faults(archive, manifest)):
            raise ServelabError(f"{path}: {faults[0]}{_more(faults)}; nothing was restored")
        names = [name for name in manifest.members if manifest.is_restored(name)]
        for search in manifest.searches:
            claims.enter_context(claim(results / search, wait=False))
        there = [name for name in names if (results / _below(name)).exists()]
        if conflicts := [name for name in there if not _is_same(manifest, name, results)]:
            listed = ", ".join(str(results / _below(name)) for name in conflicts[:_SHOWN])
            raise ServelabError(
                f"{path}: {listed}{_more(conflicts, _SHOWN)}: there with another content; nothing was restored. "
                "Move it away, or restore into another folder with --results"
            )
        missing = sorted(set(names) - set(there))
        with unpacked(archive, results, missing) as folder:
            _move(folder / RESULTS, results, missing, manifest)
    return Restored(manifest, len(missing), len(there))


def _below(name: str) -> str:
    return name.removeprefix(f"{RESULTS}/")


def _is_same(manifest: Manifest, name: str, results: Path) -> bool:
    """Whether a file that is there may be the archive's; of one that something was taken out of, nobody can say."""
    member = manifest.members[name]
    return member.redacted or file_sha256(results / _below(name)) == member.sha256


def _move(source: Path, results: Path, names: Sequence[str], manifest: Manifest) -> None:
    """Moves what was unpacked to where it belongs: raw records first, each folder of them in one step.

    Snakemake compares times: raw records get the day they are of, and all that was made of them one later time.
    """
    day = datetime.fromisoformat(manifest.date).replace(tzinfo=UTC).timestamp()
    raw = dict.fromkeys(entry for name in names if (entry := _raw_folder(name)))
    for entry in raw:
        for file in _files(source / entry):
            os.utime(file, (day, day))
        with claim(results / entry):
            (results / entry).parent.mkdir(exist_ok=True)
            if not move_folder(source / entry, results / entry):  # a part of it is there
                for file in _files(source / entry):
                    _move_file(file, results / file.relative_to(source))
    now = time.time()
    made = [results / file.relative_to(source) for file in _files(source)]
    for destination in made:
        _move_file(source / destination.relative_to(results), destination)
        os.utime(destination, (now, now))
    for folder in {destination.parent for destination in made}:  # a folder of charts is an output too
        os.utime(folder, (now, now))


def _raw_folder(name: str) -> str | None:
    kind, entry, *_ = _below(name).split("/")
    return f"{kind}/{entry}" if kind in _RAW else None


def _move_file(file: Path, destination: Path) -> None:
    destination.parent.mkdir(parents=True, exist_ok=True)
    if not destination.exists():
        file.rename(destination)


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file())


def _more(found: Sequence[str], shown: int = 1) -> str:
    return f" (and {len(found) - shown} more)" if len(found) > shown else ""
