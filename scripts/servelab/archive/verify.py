"""Verifies an archive: its files match the manifest, its records their names, its tables what is recomputed."""

from __future__ import annotations

import hashlib
import html
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from posixpath import join, normpath
from urllib.parse import unquote

from servelab.archive.contents import study_files
from servelab.archive.layout import LIVE, MANIFEST, RESULTS, WORKFLOW, Manifest, parse_manifest
from servelab.archive.recompute import differences, other_versions, recompute
from servelab.archive.records import log_faults, record_faults, referenced_runs
from servelab.archive.unpack import Archive, open_archive, reading, shown, unpacked
from servelab.core.errors import ServelabError
from servelab.core.ssh_signature import BadSignatureError
from servelab.measure.run_files import check_run, is_signed

_HREF = re.compile(r'<a\b[^<>]*\bhref="([^"#][^"]*)"')
_OUTSIDE = re.compile(r"[a-z][a-z0-9+.-]*:")
"""A link to another site."""
_FOREIGN = (AttributeError, LookupError, OSError, RuntimeError, TypeError, ValueError)
"""Errors that records raise which no workflow has written."""
_INDEX = f"{RESULTS}/index.html"
"""The page over all studies, which is not part of a study; restoring makes it."""


@dataclass
class Verification:
    """The result of a verification."""

    manifest: Manifest
    holds: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    """One line per fault, beginning with the file."""
    incomparable: list[str] = field(default_factory=list)
    """Those of the faults that say nothing, because other code or other packages made the file."""


def verify_archive(path: Path, code: Path, *, allowed_signers: Path | None = None) -> Verification:
    """Verifies an archive without a network; the workflow in the folder `code` recomputes the tables.

    `allowed_signers` names the keys whose signatures of runs count. An unreadable archive is a `ServelabError`.
    """
    with open_archive(path) as archive, reading(str(path)):
        manifest = read_manifest(archive)
        found = Verification(manifest)
        found.faults += member_faults(archive, manifest)
        if found.faults:
            found.faults.append(f"{path}: nothing was recomputed, because its files do not match the manifest")
            return found
        found.holds.append(f"{len(manifest.members)} files by their sha256")
        with (
            tempfile.TemporaryDirectory(prefix="servelab-verify-") as scratch,
            unpacked(archive, Path(scratch)) as folder,
        ):
            work = Path(scratch) / "again"
            work.mkdir()
            try:
                found.faults += _faults_of_records(folder, manifest, allowed_signers)
            except _FOREIGN as error:
                found.faults.append(f"{RESULTS}: records not written by this workflow: {type(error).__name__}: {error}")
            found.faults += _broken_links(folder, manifest)
            found.holds += (
                [] if found.faults else ["runs and logs by the hash that names them, and links of the report"]
            )
            _recompute(folder, manifest, code, work, found)
            for lines in (found.faults, found.incomparable):
                lines[:] = [line.replace(f"{folder}/", "").replace(f"{work}/", "") for line in lines]
    return found


def read_manifest(archive: Archive) -> Manifest:
    """The manifest of an open archive; `ServelabError` if it is missing or broken."""
    return parse_manifest(archive.read(MANIFEST), str(archive.path))


def member_faults(archive: Archive, manifest: Manifest) -> Iterator[str]:
    """One line per member that is missing, not in the manifest, or differs from it; reads all members."""
    for name in sorted(manifest.members.keys() - archive.members.keys()):
        yield f"{shown(name)}: is in the manifest, but not in the archive"
    for name in archive.members:
        if name == MANIFEST:
            continue
        if (listed := manifest.members.get(name)) is None:
            yield f"{name}: is not in the manifest"
            continue
        digest, size = hashlib.sha256(), 0
        try:
            for block in archive.blocks(name):
                digest.update(block)
                size += len(block)
        except ServelabError as error:
            yield f"{name}: {str(error).rpartition(f'{name}: ')[2]}"
            continue
        if (digest.hexdigest(), size) != (listed.sha256, listed.size_bytes):
            yield f"{name}: its sha256 is {digest.hexdigest()}, the manifest says {listed.sha256}"


def _faults_of_records(folder: Path, manifest: Manifest, allowed_signers: Path | None) -> Iterator[str]:
    """One line per raw record that does not match its name, its signature or the study's own files."""
    results = folder / RESULTS
    for search in manifest.searches:
        stages = results / search / "stages"
        names = [path.name for path in stages.iterdir()] if stages.is_dir() else []
        own = [path for path in study_files(results, search, names) if path.suffix in (".json", ".parquet")]
        named = referenced_runs(path for path in own if "charts" not in path.parts)
        if search.startswith(f"{LIVE}/"):
            yield from record_faults(results, named, [])
            continue
        plans = [path for path in own if path.name == "plan.json"]
        for logs in (results / search / "logs", folder / WORKFLOW / "config" / search / "logs"):
            yield from log_faults(plans, logs)
        planned = referenced_runs(plans)
        unplanned = {run_id: file for run_id, file in named.items() if run_id not in planned}
        yield from (f"{file}: names run {run_id}, which is in no plan" for run_id, file in unplanned.items())
    workloads = results / "workloads"
    yield from record_faults(results, [], sorted(path.name for path in workloads.glob("*")))
    for run in sorted((results / "runs").glob("*")) if allowed_signers else ():
        if allowed_signers and is_signed(run):
            try:
                check_run(run, allowed_signers)
            except BadSignatureError as error:
                yield f"{run}/{error}"


def _broken_links(folder: Path, manifest: Manifest) -> Iterator[str]:
    """Links of the reports to runs, logs or other files that are not in the archive."""
    there = {*manifest.members, *manifest.omitted}
    there |= {name[: end.start()] for name in there for end in re.finditer("/", name)}
    for search in manifest.searches:
        report = f"{RESULTS}/{search}/report.html"
        if report not in manifest.members:
            yield f"{report}: is not in the archive"
            continue
        text = (folder / report).read_text(encoding="utf-8", errors="replace")
        for href in sorted({unquote(html.unescape(raw)).partition("#")[0] for raw in _HREF.findall(text)}):
            target = normpath(join(f"{RESULTS}/{search}", href))
            if not _OUTSIDE.match(href) and target != _INDEX and target not in there:
                yield f"{report}: links to {target}, which is not in the archive"


def _recompute(folder: Path, manifest: Manifest, code: Path, work: Path, found: Verification) -> None:
    """Recomputes tables, decisions and answers in the empty folder `work`, and lists what differs."""
    search = f"{RESULTS}/{manifest.searches[0]}"
    try:
        if why := recompute(folder, manifest, code, work):
            found.faults.append(f"{search}: cannot be recomputed from the raw records: {why}")
            return
        compared = dict(differences(folder, manifest, work))
    except ServelabError as error:
        found.faults.append(f"{search}: cannot be recomputed: {error}")
        return
    except _FOREIGN as error:
        found.faults.append(f"{search}: from records not written by this workflow: {type(error).__name__}: {error}")
        return
    different = {name: differs for name, differs in compared.items() if differs}
    found.holds.append(
        f"{len(compared) - len(different)} tables, decisions and answers recomputed from the raw records"
    )
    why = other_versions(folder, code) if different else ""
    for name, differs in different.items():
        found.faults.append(f"{name}: {differs}{f'; {why}' * bool(why)}")
        found.incomparable += found.faults[-1:] if why else []
