"""The workflow that made a study: its files, its commit, and the differences from that commit."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from servelab.core.errors import ServelabError
from servelab.core.yaml_file import read_yaml
from servelab.measure.run_folder import git_state

CITATION = "CITATION.cff"
PARTS = (
    "CHANGELOG.md",
    CITATION,
    "CONTRIBUTING.md",
    "LICENSE",
    "Makefile",
    "README.md",
    "Snakefile",
    "config",
    "docs",
    "envs",
    "profiles",
    "pyproject.toml",
    "rules",
    "scripts",
    "tests",
)
"""The workflow's parts in a project's folder, used if there is no checkout to list its files."""
CODE = ("Snakefile", "rules", "scripts")
"""Parts where a new file counts as code that ran, committed or not."""


@dataclass(frozen=True)
class Source:
    """The workflow in a project's folder."""

    files: list[str]
    """Paths below the folder, sorted."""
    commit: str | None
    dirty: bool | None
    diff: bytes
    """Differences of tracked files from the commit, as `git diff` prints them; empty if there are none."""
    date: str | None
    """Day of the commit (UTC), or of the release if there is no checkout."""


def read_source(root: Path) -> Source:
    """The workflow in `root`. In a checkout: tracked files, and new files of the code; otherwise `PARTS`.

    `root` must be the top of the checkout, otherwise there is no commit. A link is a `ServelabError`.
    """
    if _is_checkout(root):
        state = git_state(root)
        files = _listed(root, "--cached") + _listed(root, "--others", "--exclude-standard", "--", *CODE)
        files = [name for name in files if (root / name).exists()]  # one that was deleted is in the diff
        return Source(sorted(set(_no_links(root, files))), state.commit, state.dirty, _diff(root), _day(root))
    files = [name for part in PARTS for name in _walk(root, part)]
    return Source(sorted(_no_links(root, files)), None, None, b"", _release_day(root))


def _is_checkout(root: Path) -> bool:
    top = _git(root, "rev-parse", "--show-toplevel")
    return (
        top is not None
        and Path(os.fsdecode(top.rstrip(b"\n"))) == root.resolve()
        and bool(_git(root, "rev-parse", "HEAD"))
    )


def _listed(root: Path, *arguments: str) -> list[str]:
    listed = _git(root, "ls-files", "-z", *arguments) or b""
    return [os.fsdecode(name) for name in listed.split(b"\0") if name]


def _diff(root: Path) -> bytes:
    # every option that a user's configuration could change
    form = ["--no-ext-diff", "--no-textconv", "--no-color", "--no-renames", "--binary", "--full-index", "--unified=3"]
    diff = _git(root, "diff", *form, "--diff-algorithm=myers", "--src-prefix=a/", "--dst-prefix=b/", "HEAD", "--")
    if diff is None:
        raise ServelabError(f"{root}: git cannot print the differences from the commit")
    return diff


def _day(root: Path) -> str | None:
    day = _git(
        root,
        "-c",
        "log.showSignature=false",
        "show",
        "--no-patch",
        "--format=%cd",
        "--date=format-local:%Y-%m-%d",
        "HEAD",
    )
    return day.decode().strip() if day else None


def _release_day(root: Path) -> str | None:
    path = root / CITATION
    return str(read_yaml(path)["date-released"]) if path.exists() else None


def _walk(root: Path, part: str) -> list[str]:
    path = root / part
    if path.is_file():
        return [part]
    return [
        file.relative_to(root).as_posix()
        for file in sorted(path.rglob("*"))
        if (file.is_file() or file.is_symlink())
        and not any(
            name.startswith(".") or name == "__pycache__" or name.endswith(".egg-info")
            for name in file.parts[len(root.parts) :]
        )
    ]


def _no_links(root: Path, files: list[str]) -> list[str]:
    for name in files:
        if (root / name).is_symlink():
            raise ServelabError(f"{root / name}: a link, which an archive cannot have; replace it by the file")
    return files


def _git(root: Path, *arguments: str) -> bytes | None:
    """What git prints; None if it fails or is missing."""
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments],
            capture_output=True,
            check=True,
            env=os.environ | {"TZ": "UTC", "LC_ALL": "C"},
            timeout=300,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout
