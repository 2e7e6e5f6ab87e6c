"""Matches the workflow in an archive with files that the verifier has: those of the commit that the archive names."""

from __future__ import annotations

import hashlib
import os
import re
import resource
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from servelab.archive.layout import CRATE, DIFF, MANIFEST, README, WORKFLOW, Manifest
from servelab.archive.workflow_source import CODE
from servelab.core.identity import file_sha256

_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_STUDIES_OWN = re.compile(r"config/|envs/[^/]+\.(?:txt|yaml)$")
"""Files below `workflow/` that a study may bring along: its own, and its locks."""
_SAY_COMMIT = (README, MANIFEST, CRATE)
"""They agree with each other whatever commit and day they say."""
_MOST_MEMORY_BYTES = 512 * 2**20
"""That git may take."""
_REDACTED = re.compile(r"config/(?!recorded/[^/]+/logs/)")
"""Files below `workflow/` from which names may have been removed."""


@dataclass
class WorkflowMatch:
    """What is known of the files below `workflow/`."""

    known_as: str
    """What they were compared with, for a message."""
    day: str | None = None
    """Day of the commit (UTC), if the checkout has it."""
    matched: set[str] = field(default_factory=set)
    unproved: dict[str, str] = field(default_factory=dict)
    """Other members, each with what it is."""
    faults: list[str] = field(default_factory=list)


def match_workflow(folder: Path, manifest: Manifest, root: Path) -> WorkflowMatch:
    """Compares `workflow/` of an unpacked archive with the commit that it names, as the checkout `root` has it.

    Without that commit, with the files in `root`; what differs from these is unproved.
    """
    names = [name.removeprefix(f"{WORKFLOW}/") for name in manifest.members if name.startswith(f"{WORKFLOW}/")]
    commit = manifest.commit or ""
    tree = _tree(root, commit) if _COMMIT.fullmatch(commit) else None
    if tree is None:
        return _match_folder(folder, names, commit, root)
    match = WorkflowMatch(f"commit {commit}", _day(root, commit))
    changed: Mapping[str, str] | None = tree
    if has_diff := DIFF in manifest.members:
        match.unproved[DIFF] = "changes of the workflow since its commit"
        changed = _with_diff(root, commit, folder / DIFF)
        if changed is None and not manifest.members[DIFF].redacted:
            match.faults.append(f"{DIFF}: does not apply to commit {commit}")
    if manifest.dirty != has_diff:
        match.faults.append(
            f"manifest.json: dirty is {manifest.dirty}, but {DIFF} is {'' if has_diff else 'not '}there"
        )
    for name in names:
        _match(match, folder, manifest, name, tree, changed)
    match.faults += [
        f"{WORKFLOW}/{name}: is in commit {commit}, but not in the archive"
        for name in sorted((tree if changed is None else changed).keys() - set(names))
        if changed is not None
    ]
    return match


def _match(
    match: WorkflowMatch,
    folder: Path,
    manifest: Manifest,
    name: str,
    tree: Mapping[str, str],
    changed: Mapping[str, str] | None,
) -> None:
    member = f"{WORKFLOW}/{name}"
    found = _object_id((folder / member).read_bytes(), len(manifest.commit or ""))
    if found == tree.get(name) and (changed is None or found == changed.get(name)):
        match.matched.add(member)
        if manifest.members[member].redacted:
            match.faults.append(f"{member}: is called redacted, but is the file of {match.known_as}")
    elif changed is None or (name in changed and found == changed[name]):
        match.unproved[member] = "files of the workflow that are not those of its commit"
    elif name not in tree and (name.split("/")[0] in CODE or _STUDIES_OWN.match(name)):
        match.unproved[member] = "files of the workflow that its commit does not have"
    elif manifest.members[member].redacted and _REDACTED.match(name):
        match.unproved[member] = "files of the workflow from which names were removed"
    else:
        match.faults.append(f"{member}: is not the file of {match.known_as}, and {DIFF} does not have the change")


def _match_folder(folder: Path, names: Iterable[str], commit: str, root: Path) -> WorkflowMatch:
    known_as = "the workflow that verifies" + (f", because this checkout does not have commit {commit}" * bool(commit))
    match = WorkflowMatch(
        known_as, unproved=dict.fromkeys(_SAY_COMMIT, "descriptions whose commit and day are not known here")
    )
    for name in names:
        member, own = f"{WORKFLOW}/{name}", root / name
        if own.is_file() and file_sha256(own) == file_sha256(folder / member):
            match.matched.add(member)
        else:
            match.unproved[member] = "files of the workflow that could not be checked"
    if (folder / DIFF).exists():
        match.unproved[DIFF] = "changes of the workflow since its commit"
    return match


def _tree(root: Path, commit: str) -> dict[str, str] | None:
    """The object of each file of a commit; None if the checkout does not have it."""
    listed = _git(root, "ls-tree", "-r", "-z", "--full-tree", commit)
    return None if listed is None else dict(_entries(listed, kind=1, id_at=2))


def _with_diff(root: Path, commit: str, diff: Path) -> dict[str, str] | None:
    """The same with a diff applied, in an index and an object folder of its own; None if it does not apply."""
    objects = _git(root, "rev-parse", "--path-format=absolute", "--git-path", "objects")
    if objects is None:
        return None
    with tempfile.TemporaryDirectory(prefix="servelab-diff-") as scratch:
        Path(scratch, "objects").mkdir()
        own = {
            "GIT_INDEX_FILE": f"{scratch}/index",
            "GIT_OBJECT_DIRECTORY": f"{scratch}/objects",
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": os.fsdecode(objects.rstrip(b"\n")),
        }
        for arguments in (["read-tree", commit], ["apply", "--cached", "--whitespace=nowarn", str(diff.absolute())]):
            if _git(root, *arguments, variables=own) is None:
                return None
        listed = _git(root, "ls-files", "--stage", "-z", variables=own)
        return None if listed is None else dict(_entries(listed, kind=None, id_at=1))


def _entries(listed: bytes, kind: int | None, id_at: int) -> Iterator[tuple[str, str]]:
    for line in filter(None, listed.split(b"\0")):
        fields, _, name = line.partition(b"\t")
        parts = fields.decode().split()
        if kind is None or parts[kind] == "blob":
            yield os.fsdecode(name), parts[id_at]


def _object_id(content: bytes, digits: int) -> str:
    """The name of a content in git, in a repository whose names have so many hex digits."""
    digest = hashlib.sha256() if digits == 64 else hashlib.sha1(usedforsecurity=False)
    digest.update(b"blob %d\0" % len(content) + content)
    return digest.hexdigest()


def _day(root: Path, commit: str) -> str | None:
    form = ["--no-patch", "--format=%cd", "--date=format-local:%Y-%m-%d"]
    day = _git(root, "-c", "log.showSignature=false", "show", *form, commit)
    return day.decode().strip() if day else None


def _limit_memory() -> None:
    """A few lines of a binary patch may stand for gigabytes, and git would reserve them."""
    resource.setrlimit(resource.RLIMIT_DATA, (_MOST_MEMORY_BYTES, _MOST_MEMORY_BYTES))


def _git(root: Path, *arguments: str, variables: Mapping[str, str] | None = None) -> bytes | None:
    """What git prints; None if it fails or is missing."""
    try:
        done = subprocess.run(
            ["git", "--no-replace-objects", "-C", str(root), *arguments],
            capture_output=True,
            check=True,
            env=os.environ | {"TZ": "UTC", "LC_ALL": "C"} | dict(variables or {}),
            timeout=300,
            preexec_fn=_limit_memory,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout
