"""Verifies an archive: every member is made again, matched with a known workflow, signed, or listed as not proved."""

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
from servelab.archive.contents import absent, study_files
from servelab.archive.coverage import Coverage, sort_members
from servelab.archive.known_workflow import match_workflow
from servelab.archive.layout import MANIFEST, RESULTS, WORKFLOW, Manifest, media_type, parse_manifest
from servelab.archive.rebuilt import member_differences, rebuild, record_differences
from servelab.archive.recompute import differences, other_versions, recompute
from servelab.archive.references import referenced_runs
from servelab.archive.unpack import Archive, open_archive, shown, unpacked
from servelab.archive.untrusted import reading
from servelab.core.errors import ServelabError
from servelab.core.seal import IMPORTED
from servelab.core.ssh_signature import BadSignatureError
from servelab.measure.signed_run import check_run, is_signed

_HREF = re.compile(r'<a\b[^<>]*\bhref="([^"#][^"]*)"')
_OUTSIDE = re.compile(r"[a-z][a-z0-9+.-]*:")
"""A link to another site."""
_NOT_WRITTEN_HERE = (AttributeError, LookupError, OSError, RuntimeError, TypeError, ValueError)
"""What reading records raises that no workflow has written."""
_INDEX = f"{RESULTS}/index.html"
"""The page over all studies, which is not part of a study; restoring makes it."""


@dataclass
class Verdict:
    """The result of a verification."""

    manifest: Manifest
    holds: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    """One line per fault, beginning with the file."""
    incomparable: list[str] = field(default_factory=list)
    """Those of the faults that say nothing, because other code or other packages made the file."""
    coverage: Coverage = field(default_factory=Coverage)
    known_as: str = ""
    """What the workflow in the archive was compared with."""


def verify_archive(
    path: Path,
    root: Path,
    *,
    own_workflow: bool = False,
    is_whole_signed: bool = False,
    allowed_signers: Path | None = None,
) -> Verdict:
    """Verifies an archive without a network.

    `root` is the project's folder: its workflow recomputes the tables, and its git history has the commits that an
    archive may name. With `own_workflow`, the workflow in the archive recomputes, which runs its code.
    `is_whole_signed` if a signature of the whole file counts; `allowed_signers` names the keys whose signatures of
    runs count. An unreadable archive is a `ServelabError`.
    """
    with open_archive(path) as archive, reading(str(path)):
        manifest = read_manifest(archive)
        verdict = Verdict(manifest)
        verdict.faults += member_faults(archive, manifest)
        if verdict.faults:
            verdict.faults.append(f"{path}: nothing was recomputed, because its files do not match the manifest")
            return verdict
        verdict.holds.append(f"{len(manifest.members)} files by their sha256")
        with (
            tempfile.TemporaryDirectory(prefix="servelab-verify-") as scratch,
            unpacked(archive, Path(scratch)) as folder,
        ):
            work = Path(scratch) / "again"
            work.mkdir()
            signed, faults = _signed_records(folder, manifest, allowed_signers)
            verdict.faults += faults
            if is_whole_signed:
                signed = {*manifest.members, MANIFEST}
            _verify(folder, work, root, folder / WORKFLOW if own_workflow else root, signed, verdict)
            for lines in (verdict.faults, verdict.incomparable):
                lines[:] = [line.replace(f"{folder}/", "").replace(f"{work}/", "") for line in lines]
    return verdict


def _verify(folder: Path, work: Path, root: Path, code: Path, signed: set[str], verdict: Verdict) -> None:
    """Checks an unpacked archive; recomputes it in the empty folder `work`."""
    manifest = verdict.manifest
    faults = _record_faults(folder, manifest)
    verdict.faults += faults
    verdict.holds += [] if faults else [f"{_count_runs(manifest)} by the hash that names them"]
    _trace(folder, manifest, verdict)
    match = match_workflow(folder, manifest, root)
    verdict.known_as = match.known_as
    verdict.faults += match.faults
    reproduced = _reproduce(folder, manifest, code, work, match.day, verdict)
    verdict.coverage = sort_members(
        [*manifest.members, MANIFEST],
        reproduced=reproduced - match.unproved.keys(),
        matched=match.matched,
        signed=signed,
        known=match.unproved,
        absent={} if MANIFEST in signed else _absent(folder, manifest),
    )


def _absent(folder: Path, manifest: Manifest) -> dict[str, str]:
    try:
        return absent(folder, manifest)
    except (ServelabError, *_NOT_WRITTEN_HERE):  # a fault of the records, which has its line
        return {}


def _signed_records(folder: Path, manifest: Manifest, allowed_signers: Path | None) -> tuple[set[str], list[str]]:
    """Raw records that their run's signature covers, and one line per signature that does not count."""
    signed: set[str] = set()
    faults: list[str] = []
    runs = dict.fromkeys(run for name in manifest.members if (run := _record(name)).startswith(f"{RESULTS}/runs/"))
    for run in runs if allowed_signers else ():
        if allowed_signers and is_signed(folder / run):
            try:
                redacted = {f"{run}/{name}" for name in check_run(folder / run, allowed_signers).redacted}
            except BadSignatureError as error:
                faults.append(f"{run}/{error}")
                continue
            own = {name for name in manifest.members if name.startswith(f"{run}/")}
            signed |= own - redacted - {f"{run}/{IMPORTED}"}
    return signed, faults


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
    yield from (f"{name}: {differs}" for name, differs in record_differences(folder, manifest))
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


def _trace(folder: Path, manifest: Manifest, verdict: Verdict) -> None:
    """Follows every link of the report to a run, a log or another file of the archive."""
    links: dict[str, int] = {}
    for search in manifest.searches:
        report = f"{RESULTS}/{search}/report.html"
        if report not in manifest.members:
            verdict.faults.append(f"{report}: is not in the archive")
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
                verdict.faults.append(f"{report}: links to {target}, which is not in the archive")
    evidence = {name for name in links if name.startswith(f"{RESULTS}/runs/") or "/logs/" in name}
    figures = sum(links[name] for name in evidence)
    verdict.holds.append(
        f"{figures:,} figures of the report traced to {len({_record(name) for name in evidence})} runs"
    )


def _is_folder(name: str, manifest: Manifest) -> bool:
    return any(member.startswith(f"{name}/") for member in manifest.members)


def _record(name: str) -> str:
    """The target of a link to evidence: a run's folder, or a log."""
    return "/".join(name.split("/")[:3]) if name.startswith(f"{RESULTS}/runs/") else name


def _reproduce(folder: Path, manifest: Manifest, code: Path, work: Path, day: str | None, verdict: Verdict) -> set[str]:
    """Makes again whatever can be, reports differences, and returns the members that are the same."""
    search = f"{RESULTS}/{manifest.searches[0]}"
    found: dict[str, str | None] = {}
    try:
        if why := recompute(folder, manifest, code, work):
            verdict.faults.append(f"{search}: cannot be recomputed from the raw records: {why}")
            return set()
        found |= differences(folder, manifest, work)
        same = sum(not differs for differs in found.values())
        verdict.holds.append(f"{same} tables, decisions, charts and reports recomputed from the raw records")
        found |= member_differences(folder, manifest, rebuild(folder, manifest, work, day))
    except ServelabError as error:
        verdict.faults.append(f"{search}: cannot be recomputed: {error}")
    except _NOT_WRITTEN_HERE as error:
        verdict.faults.append(f"{search}: from records not written by this workflow: {type(error).__name__}: {error}")
    different = {name: differs for name, differs in found.items() if differs}
    why = other_versions(folder, code) if different else ""
    for name, differs in different.items():
        verdict.faults.append(f"{name}: {differs}{f'; {why}' * bool(why)}")
        verdict.incomparable += verdict.faults[-1:] if why else []
    return found.keys() - different.keys()


def _own_files(results: Path, search: str) -> list[Path]:
    stages = results / search / "stages"
    return list(study_files(results, search, [path.name for path in stages.iterdir()] if stages.is_dir() else []))
