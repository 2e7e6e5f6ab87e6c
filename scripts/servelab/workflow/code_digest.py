"""One file for all code: the input of each rule that is cheap to repeat.

Rules that measure, download or convert do not have it: the names of their outputs say what is in them.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from servelab.core.files import write_text
from servelab.core.identity import file_sha256

_AHEAD_NS = 5_000_000_000
"""By so much the clocks of nodes may differ."""


def set_back(results: Path) -> None:
    """Dates results now that are ahead of the clock, all alike: Snakemake would take what changes later for older."""
    now_ns = time.time_ns()
    for path in (*results.glob("*/*/*"), *results.glob("studies/*/**/*"), *results.glob("recorded/*/**/*")):
        with suppress(OSError):  # gone, or another user's
            if path.lstat().st_mtime_ns > now_ns + _AHEAD_NS:
                os.utime(path, ns=(now_ns, now_ns), follow_symlinks=False)


def digest_code(scripts: Path, digest: Path) -> None:
    """Writes the sha256 of each file below `scripts`, unless they are the same already.

    The first time, the digest is made as old as the newest of the files, as Snakemake compares times where it has no
    record of an earlier job.
    """
    files = [path for path in sorted(scripts.rglob("*")) if path.is_file() and _is_code(path.relative_to(scripts))]
    lines = "".join(f"{file_sha256(path)}  {path.relative_to(scripts)}\n" for path in files)
    existed = digest.exists()
    if not existed or digest.read_text(encoding="utf-8") != lines:
        write_text(digest, lines)
    if not existed:
        newest_ns = max(path.stat().st_mtime_ns for path in files)
        os.utime(digest, ns=(newest_ns, newest_ns))


def _is_code(path: Path) -> bool:
    """Leaves out what Python and editors write beside the code."""
    return not any(part.startswith((".", "__pycache__")) or part.endswith((".egg-info", "~")) for part in path.parts)
