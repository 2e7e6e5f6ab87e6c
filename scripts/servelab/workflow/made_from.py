"""One file for all code, and one for each study: inputs of the rules that are cheap to repeat.

A rule has the digest of what it reads besides the files of other rules. Rules that measure, download or convert have
none: the names of their outputs say what is in them.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path

from servelab.archive.contents import read_source
from servelab.core.errors import ConfigError
from servelab.core.files import own_or_shipped, write_text
from servelab.core.identity import content_id, file_sha256
from servelab.core.registry import plugged_in
from servelab.study.project import LIVE, RECORDED, Project
from servelab.workflow.studies import Studies

CODE = ".snakemake/made_from/code.sha256"
MADE_FROM = ".snakemake/made_from/{search}.sha256"
MADE_FROM_LIVE = MADE_FROM.format(search=f"{LIVE}/{{study}}")
MADE_FROM_RECORDED = MADE_FROM.format(search=f"{RECORDED}/{{study}}")
_AHEAD_NS = 5_000_000_000
"""By so much the clocks of nodes may differ."""


def set_back(results: Path) -> None:
    """Dates results now that are ahead of the clock, all alike: Snakemake would take what changes later for older."""
    now_ns = time.time_ns()
    for path in (*results.glob("*/*/*"), *results.glob("studies/*/**/*"), *results.glob("recorded/*/**/*")):
        with suppress(OSError):  # gone, or another user's
            if path.lstat().st_mtime_ns > now_ns + _AHEAD_NS:
                os.utime(path, ns=(now_ns, now_ns), follow_symlinks=False)


def write_digests(scripts: Path, studies: Studies) -> None:
    """Writes the digests of the code, below `scripts` and of other packages, and of each study.

    The locks of a study's engines and client are in its digest, as their content is part of every run's identity. That
    of a recorded study has the others beside it, as its audit looks in them for figures that are not its own.
    """
    write_digest(Path(CODE), code_files(scripts) | plugged_in())
    code = {Path(CODE): "code"}
    for name, project in studies.live.items():
        write_digest(Path(MADE_FROM.format(search=f"{LIVE}/{name}")), code | _named(_read_by(project)))
    recorded = _named(path for path in Path("config", RECORDED).rglob("*") if path.is_file())
    for name in studies.recorded:
        write_digest(Path(MADE_FROM.format(search=f"{RECORDED}/{name}")), code | recorded)


def code_files(scripts: Path) -> dict[Path, str]:
    """Every file below `scripts` with its name there, without what Python and editors write beside the code."""
    names = [path.relative_to(scripts) for path in sorted(scripts.rglob("*")) if path.is_file()]
    besides = re.compile(r"(^|/)(\.|__pycache__)|(\.egg-info|~)(/|$)")
    return {scripts / name: str(name) for name in names if not besides.search(name.as_posix())}


def _read_by(project: Project) -> Iterable[Path]:
    locks = {project.client_lock, *(project.lock(alias) for alias in project.study.engines)}
    named = [own_or_shipped(project.root, f"config/{name}.yaml") for name in ("workloads", "datasets")]
    return [project.file, *named, *(lock for lock in locks if lock)]


def _named(files: Iterable[Path]) -> dict[Path, str]:
    return {path: path.name for path in sorted(files) if path.exists()}


def write_digest(digest: Path, files: dict[Path, str]) -> None:
    """Writes the sha256 of each file and its name, unless they are the same already.

    The first time, the digest is made as old as the newest of the files, as Snakemake compares times where it has no
    record of an earlier job. Of an edited file that is older than the results, the digest is new.
    """
    lines = "".join(f"{file_sha256(path)}  {name}\n" for path, name in files.items())
    existed = digest.exists()
    if not existed or digest.read_text(encoding="utf-8") != lines:
        write_text(digest, lines)
    if not existed:
        newest_ns = max(path.stat().st_mtime_ns for path in files)
        os.utime(digest, ns=(newest_ns, newest_ns))


def check_checkout(scripts: Path) -> None:
    """`ConfigError` if the current folder is not the checkout with these scripts: an archive holds both as one."""
    if (checkout := scripts.resolve().parent) != Path.cwd():
        raise ConfigError(f"{Path.cwd()}: archives are made in the checkout of Servelab, {checkout}, of its studies")


@cache
def workflow_id(root: Path = Path()) -> str:
    """Hash of the workflow's files as they are now, which an archive holds."""
    source = read_source(root)
    return content_id({"commit": source.commit, "files": {name: file_sha256(root / name) for name in source.files}})
