"""Verifies an archive: its bytes, its tables made again from the raw records, and every figure traced to a run."""

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

from servelab.archive import checks
from servelab.archive.contents import study_files
from servelab.archive.layout import MANIFEST, RESULTS, WORKFLOW, Manifest, media_type, parse_manifest
from servelab.archive.member_names import shown
from servelab.archive.recompute import differences, recompute
from servelab.archive.references import references
from servelab.archive.unpack import Archive, open_archive, unpacked
from servelab.errors import ServelabError
from servelab.manifest import git_state

_HREF = re.compile(r'<a\b[^>]*\bhref="([^"#][^"]*)"')
_OUTSIDE = re.compile(r"[a-z][a-z0-9+.-]*:")
"""A link that leads into the world, and to no file."""
_INDEX = f"{RESULTS}/index.html"
"""The page over all studies: it is of no study, and restoring makes it."""


@dataclass
class Verdict:
    """What was found of an archive."""

    manifest: Manifest
    holds: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    """What does not hold, a line each, beginning with the file it shows at."""


def verify_archive(path: Path, code: Path | None) -> Verdict:
    """Everything that can be said of an archive without a network.

    `code` is the project's folder whose workflow makes the tables again; None for the one in the archive, which then
    runs here. An archive that cannot be read at all is a `ServelabError`.
    """
    with open_archive(path) as archive:
        manifest = read_manifest(archive)
        verdict = Verdict(manifest)
        verdict.faults += member_faults(archive, manifest)
        if verdict.faults:
            verdict.faults.append(f"{path}: nothing was made again, for its files are not those of the manifest")
            return verdict
        verdict.holds.append(f"{len(manifest.members)} files by their sha256")
        with (
            tempfile.TemporaryDirectory(prefix="servelab-verify-") as scratch,
            unpacked(archive, Path(scratch)) as folder,
        ):
            faults = [fault.replace(f"{folder}/", "") for fault in _told_faults(folder, manifest)]
            verdict.faults += faults
            verdict.holds += [] if faults else [f"{_count_runs(manifest)} by the hash that names them"]
            _trace(folder, manifest, verdict)
            work = Path(scratch) / "again"
            work.mkdir()
            _compare(folder, manifest, code or folder / WORKFLOW, work, verdict)
    return verdict


def read_manifest(archive: Archive) -> Manifest:
    """The manifest of an open archive; `ServelabError` where there is none, or a broken one."""
    return parse_manifest(archive.read(MANIFEST), str(archive.path))


def member_faults(archive: Archive, manifest: Manifest) -> Iterator[str]:
    """Members that are missing, not in the manifest, or not what it says of them; all of them are read."""
    for name in sorted(manifest.members.keys() - archive.members.keys()):
        yield f"{shown(name)}: is in the manifest, and not in the archive"
    for name in archive.members:
        if name == MANIFEST:
            continue
        if (told := manifest.members.get(name)) is None:
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
        if digest.hexdigest() != told.sha256:
            yield f"{name}: its sha256 is {digest.hexdigest()}, the manifest says {told.sha256}"
        elif size != told.size_bytes:
            yield f"{name}: has {size:,} bytes, the manifest says {told.size_bytes:,}"
        elif media_type(name) != told.media_type:
            yield f"{name}: is {media_type(name)}, the manifest says {told.media_type}"


def _count_runs(manifest: Manifest) -> str:
    runs = {name.split("/")[2] for name in manifest.members if name.startswith(f"{RESULTS}/runs/")}
    logs = [name for name in manifest.members if re.match(rf"{RESULTS}/recorded/[^/]+/logs/", name)]
    parts = [f"{len(runs)} runs"] if runs else []
    return " and ".join([*parts, *([f"{len(logs)} logs"] if logs else [])])


def _told_faults(folder: Path, manifest: Manifest) -> list[str]:
    """The same as `_record_faults`, also of records that no workflow has written."""
    try:
        return list(_record_faults(folder, manifest))
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        return [f"{RESULTS}: records that are none of this workflow: {type(error).__name__}: {error}"]


def _record_faults(folder: Path, manifest: Manifest) -> Iterator[str]:
    """Raw records that are not what their names, or the study's own files, say."""
    results = folder / RESULTS
    for search in manifest.searches:
        own = [path for path in _own_files(results, search) if path.suffix in (".json", ".parquet")]
        if search.startswith("recorded/"):
            plans = [path for path in own if path.name == "plan.json"]
            yield from checks.log_faults(plans, results / search / "logs")
            yield from checks.log_faults(plans, folder / WORKFLOW / "config" / search / "logs")
            yield from _unplanned(plans, own)
            continue
        named = references(path for path in own if "charts" not in path.parts)
        yield from checks.run_faults(results, named.runs)
        yield from checks.pair_faults(results, named.pairs)
        yield from checks.sent_faults(results, named.runs)
    workloads = results / "workloads"
    yield from checks.workload_faults(
        results, sorted(path.name for path in workloads.iterdir()) if workloads.is_dir() else []
    )


def _unplanned(plans: list[Path], own: list[Path]) -> Iterator[str]:
    """Runs that a recorded study's files name and its plans do not have."""
    planned = references(plans).runs
    for run_id, file in references(path for path in own if "charts" not in path.parts).runs.items():
        if run_id not in planned:
            yield f"{file}: names run {run_id}, which is in no plan"


def _trace(folder: Path, manifest: Manifest, verdict: Verdict) -> None:
    """Follows every link of the report: to a run, a log or another file that is here."""
    links: dict[str, int] = {}
    for search in manifest.searches:
        report = f"{RESULTS}/{search}/report.html"
        text = (folder / report).read_text(encoding="utf-8")
        for raw in _HREF.findall(text):
            href = unquote(html.unescape(raw)).partition("#")[0]
            if _OUTSIDE.match(href):
                continue
            target = normpath(join(f"{RESULTS}/{search}", href))
            if target == _INDEX:
                continue
            if target in links:
                links[target] += 1
            elif target in manifest.members or target in manifest.omitted or (folder / target).is_dir():
                links[target] = 1
            elif not any(name.startswith(f"{target}/") for name in manifest.omitted):
                verdict.faults.append(f"{report}: leads to {target}, which is not here")
    evidence = {name for name in links if name.startswith(f"{RESULTS}/runs/") or "/logs/" in name}
    figures = sum(links[name] for name in evidence)
    verdict.holds.append(
        f"{figures:,} figures of the report traced to {len({_record(name) for name in evidence})} runs"
    )


def _record(name: str) -> str:
    """What a link to evidence leads to: a run's folder, or a log."""
    return "/".join(name.split("/")[:3]) if name.startswith(f"{RESULTS}/runs/") else name


def _compare(folder: Path, manifest: Manifest, code: Path, work: Path, verdict: Verdict) -> None:
    """Makes everything again and says what is not the same."""
    if why := recompute(folder, manifest, code, work):
        verdict.faults.append(f"{RESULTS}/{manifest.searches[0]}: cannot be made again from the raw records: {why}")
        return
    same = 0
    for name, differs in differences(folder, manifest, work):
        if differs:
            verdict.faults.append(f"{name}: {differs}")
        else:
            same += 1
    verdict.holds.append(f"{same} tables, decisions, charts and reports made again from the raw records")


def _own_files(results: Path, search: str) -> list[Path]:
    stages = results / search / "stages"
    return list(study_files(results, search, [path.name for path in stages.iterdir()] if stages.is_dir() else []))


def code_of(manifest: Manifest, root: Path) -> str:
    """How the workflow that verifies stands to the archive's, for a reader who sees a difference."""
    here = git_state(root)["commit"]
    if manifest.commit is None or here is None or here == manifest.commit:
        return ""
    return f"the tables were made again by commit {here}, the archive's workflow is {manifest.commit}"
