"""One file for all code: the input of each rule that is cheap to repeat.

Rules that measure, download or convert do not have it: the names of their outputs say what is in them.
"""

from __future__ import annotations

import os
from pathlib import Path

from servelab.core.files import write_text
from servelab.core.identity import file_sha256


def digest_code(scripts: Path, digest: Path, results: Path) -> None:
    """Writes the sha256 of each file below `scripts`, unless they are the same already.

    The first time, the digest is made as old as the newest of the files, as Snakemake compares times where it has no
    record of an earlier job. After a change it is newer than all `results` of studies, whatever clock dated them.
    """
    files = [path for path in sorted(scripts.rglob("*")) if path.is_file() and _is_code(path.relative_to(scripts))]
    lines = "".join(f"{file_sha256(path)}  {path.relative_to(scripts)}\n" for path in files)
    existed = digest.exists()
    if not existed or digest.read_text(encoding="utf-8") != lines:
        write_text(digest, lines)
        made = files if not existed else [digest, *results.glob("studies/*/**/*"), *results.glob("recorded/*/**/*")]
        newest_ns = max(path.lstat().st_mtime_ns for path in made)
        os.utime(digest, ns=(newest_ns, newest_ns + existed))


def _is_code(path: Path) -> bool:
    """Leaves out what Python and editors write beside the code."""
    return not any(part.startswith((".", "__pycache__")) or part.endswith((".egg-info", "~")) for part in path.parts)
