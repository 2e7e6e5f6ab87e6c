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

from servelab.archive import record_faults
from servelab.archive.contents import study_files
from servelab.archive.layout import MANIFEST, RESULTS, WORKFLOW, Manifest, media_type, parse_manifest
from servelab.archive.recompute import differences, other_versions, recompute
from servelab.archive.references import referenced_runs
from servelab.archive.unpack import Archive, open_archive, shown, unpacked
from servelab.archive.untrusted import reading
from servelab.core.errors import ServelabError
from servelab.core.ssh_signature import BadSignatureError
from servelab.measure.run_files import check_run, is_signed

_HREF = re.compile(r'<a\b[^<>]*\bhref="([^"#][^"]*)"')
_OUTSIDE = re.compile(r"[a-z][a-z0-9+.-]*:")
"""A link to another site."""
_NOT_WRITTEN_HERE = (AttributeError, LookupError, OSError, RuntimeError, TypeError, ValueError)
"""What reading records raises that no workflow has written."""
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


def verify_archive(
    path: Path, root: Path, *, own_workflow: bool = False, allowed_signers: Path | None = None
) -> Verification:
    """Verifies an archive without a network.

    The workflow in `root` recomputes the tables; with `own_workflow` the archive's own, which runs its code.
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
            faults = [*_record_faults(folder, manifest), *_signature_faults(folder, manifest, allowed_signers)]
            found.faults += faults
            found.holds += [] if faults else [f"{_count_runs(manifest)} by the hash that names them"]
            _trace(folder, manifest, found)
            _recompute(folder, manifest, folder / WORKFLOW if own_workflow else root, work, found)
            for lines in (found.faults, found.incomparable):
                lines[:] = [line.replace(f"{folder}/", "").replace(f"{work}/", "") for line in lines]
    return found


def _signature_faults(folder: Path, manifest: Manifest, allowed_signers: Path | None) -> Iterator[str]:
    """One line per signature of a run that does not count."""
    runs = dict.fromkeys(run for name in manifest.members if (run := _record(name)).startswith(f"{RESULTS}/runs/"))
    for run in runs if allowed_signers else ():
        if allowed_signers and is_signed(folder / run):
            try:
                check_run(folder / run, allowed_signers)
            except BadSignatureError as error:
                yield f"{run}/{error}"


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
        if digest.hexdigest() != listed.sha256:
            yield f"{name}: its sha256 is {digest.hexdigest()}, the manifest says {listed.sha256}"
        elif size != listed.size_bytes:
            yield f"{name}: has {size:,} bytes, the manifest says {listed.size_bytes:,}"
        elif media_type(name) != listed.media_type:
            yield f"{name}: is {media_type(name)}, the manifest says {listed.media_type}"


def _count_runs(manifest: Manifest) -> str:
    runs = {name.split("/")[2] for name in manifest.members if name.startswith(f"{RESULTS}/runs/")}
    logs = [name for name in manifest.members if re.match(rf"{RESULTS}/recorded/[^/]+/logs/", name)]
    parts = [f"{len(runs)} runs"] if runs else []
    return " and ".join([*parts, *([f"{len(logs)} logs"] if logs else [])])


def _record_faults(folder: Path, manifest: Manifest) -> list[str]:
    """One line per raw record that does not match its name or the study's own files."""
    try:
        return list(_find_record_faults(folder, manifest))
    except _NOT_WRITTEN_HERE as error:
        return [f"{RESULTS}: records not written by this workflow: {type(error).__name__}: {error}"]


def _find_record_faults(folder: Path, manifest: Manifest) -> Iterator[str]:
    results = folder / RESULTS
    for search in manifest.searches:
        own = [path for path in _own_files(results, search) if path.suffix in (".json", ".parquet")]
        if search.startswith("recorded/"):
            plans = [path for path in own if path.name == "plan.json"]
            yield from record_faults.log_faults(plans, results / search / "logs")
            yield from record_faults.log_faults(plans, folder / WORKFLOW / "config" / search / "logs")
            yield from _unplanned(plans, own)
            continue
        named = referenced_runs(path for path in own if "charts" not in path.parts)
        yield from record_faults.run_faults(results, named)
        yield from record_faults.seal_faults(results, named)
        yield from record_faults.sent_faults(results, named)
    workloads = results / "workloads"
    yield from record_faults.workload_faults(
        results, sorted(path.name for path in workloads.iterdir()) if workloads.is_dir() else []
    )


def _unplanned(plans: list[Path], own: list[Path]) -> Iterator[str]:
    """Runs that a recorded study's files name but its plans lack."""
    planned = referenced_runs(plans)
    for run_id, file in referenced_runs(path for path in own if "charts" not in path.parts).items():
        if run_id not in planned:
            yield f"{file}: names run {run_id}, which is in no plan"


def _trace(folder: Path, manifest: Manifest, found: Verification) -> None:
    """Follows every link of the report to a run, a log or another file of the archive."""
    links: dict[str, int] = {}
    for search in manifest.searches:
        report = f"{RESULTS}/{search}/report.html"
        if report not in manifest.members:
            found.faults.append(f"{report}: is not in the archive")
            continue
        text = (folder / report).read_text(encoding="utf-8", errors="replace")
        for raw in _HREF.findall(text):
            href = unquote(html.unescape(raw)).partition("#")[0]
            if _OUTSIDE.match(href):
                continue
            target = normpath(join(f"{RESULTS}/{search}", href))
            if target == _INDEX:
                continue
            if target in links:
                links[target] += 1
            elif target in manifest.members or target in manifest.omitted or _is_folder(target, manifest):
                links[target] = 1
            elif not any(name.startswith(f"{target}/") for name in manifest.omitted):
                found.faults.append(f"{report}: links to {target}, which is not in the archive")
    evidence = {name for name in links if name.startswith(f"{RESULTS}/runs/") or "/logs/" in name}
    figures = sum(links[name] for name in evidence)
    found.holds.append(f"{figures:,} figures of the report traced to {len({_record(name) for name in evidence})} runs")


def _is_folder(name: str, manifest: Manifest) -> bool:
    return any(member.startswith(f"{name}/") for member in manifest.members)


def _record(name: str) -> str:
    """The target of a link to evidence: a run's folder, or a log."""
    return "/".join(name.split("/")[:3]) if name.startswith(f"{RESULTS}/runs/") else name


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
    except _NOT_WRITTEN_HERE as error:
        found.faults.append(f"{search}: from records not written by this workflow: {type(error).__name__}: {error}")
        return
    different = {name: differs for name, differs in compared.items() if differs}
    same = len(compared) - len(different)
    found.holds.append(f"{same} tables, decisions and answers recomputed from the raw records")
    why = other_versions(folder, code) if different else ""
    for name, differs in different.items():
        found.faults.append(f"{name}: {differs}{f'; {why}' * bool(why)}")
        found.incomparable += found.faults[-1:] if why else []


def _own_files(results: Path, search: str) -> list[Path]:
    stages = results / search / "stages"
    return list(study_files(results, search, [path.name for path in stages.iterdir()] if stages.is_dir() else []))
