"""Unpacks an untrusted archive: names, kinds and declared sizes are checked before anything is written.

Every fault is one `ServelabError` that names the archive and the member.
"""

from __future__ import annotations

import errno
import re
import shutil
import stat
import tempfile
import unicodedata
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import pyarrow as pa

from servelab.core.errors import Outage, ServelabError

_MOST_NAME_BYTES = 255
_ODD = re.compile(r"|.*[\\:].*| .*|.*[ .]|(?:CON|PRN|AUX|NUL|(?:COM|LPT)[1-9]) *(?:\..*)?", re.IGNORECASE | re.DOTALL)
"""A part of a name that is empty, `.`, `..`, or another name or a device on Windows."""
_CONTENT_ERRORS = (
    *(ArithmeticError, AttributeError, EOFError, LookupError, RuntimeError, TypeError, ValueError),
    *(zipfile.BadZipFile, zlib.error, pa.ArrowException),
)
"""Errors that a file of another form raises, or one made to harm."""
_NAME_ERRORS = {None, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.EINVAL}
"""Errors of the system that the content of an archive can cause; a full disk is none of these."""


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Turns what the block raises about an archive's content into one `ServelabError` line that begins with `what`.

    Errors of the system become an `Outage`.
    """
    try:
        yield
    except Outage:
        raise
    except ServelabError as error:
        text = str(error)
        raise ServelabError(shown(text if text.startswith(what) else f"{what}: {text}", 1000)) from None
    except (*_CONTENT_ERRORS, OSError) as error:
        if isinstance(error, OSError) and error.errno not in _NAME_ERRORS:
            raise Outage(f"{what}: {error}") from error
        why = f"has content that this workflow does not write: {type(error).__name__}: {error}"
        raise ServelabError(shown(f"{what}: {why}", 1000)) from None


def shown(text: str, most: int = 160) -> str:
    """The start of a text that an archive brings, in one line for a message."""
    line = " ".join(text[: most + 1].split())
    return "".join(each if each.isprintable() else "�" for each in line[:most]) + "…" * (len(text) > most)


@dataclass(frozen=True)
class Limits:
    """Limits of an archive; a larger one is refused before it is unpacked."""

    members: int = 100_000
    total_bytes: int = 256 * 2**30
    """All members, unpacked."""
    ratio: float = 300.0
    """Unpacked ÷ packed size, of a member or of all. Archives of studies have 3 to 20, logs 50, a bomb 1,032."""
    ratio_from_bytes: int = 64 * 2**20
    """Smaller sizes may have any ratio."""


@contextmanager
def unpacked(path: Path, parent: Path, limits: Limits = Limits()) -> Iterator[Path]:
    """A temporary folder below `parent` with all members of an archive.

    A fault of the archive is a `ServelabError`, a full disk an `Outage`.
    """
    if not path.is_file():
        raise ServelabError(f"{path}: no such file")
    with tempfile.TemporaryDirectory(prefix=".unpacked-", dir=parent, ignore_cleanup_errors=True) as folder:
        with reading(str(path)), zipfile.ZipFile(path) as zipped:
            if fault := next(_faults(zipped.infolist(), path.stat().st_size, limits), None):
                raise ServelabError(f"{path}: {fault}")
            size, free = sum(each.file_size for each in zipped.infolist()), shutil.disk_usage(folder).free
            if size > free:
                raise Outage(f"{path}: unpacks to {size:,} bytes, but {folder} has {free:,} free")
            zipped.extractall(folder)
        yield Path(folder)


def _faults(members: list[zipfile.ZipInfo], size: int, limits: Limits) -> Iterator[str]:
    if len(members) > limits.members:
        yield f"has more than {limits.members:,} members"
    packed, total = (sum(getattr(member, name) for member in members) for name in ("compress_size", "file_size"))
    sizes = {member.orig_filename: (member.file_size, member.compress_size) for member in members}
    for member in members:
        if why := _fault_of_member(member):
            yield f"{shown(member.orig_filename)}: {why}"
    for name, (unpacked_bytes, packed_bytes) in {**sizes, "all members": (total, packed)}.items():
        if unpacked_bytes > max(limits.ratio * packed_bytes, limits.ratio_from_bytes):
            yield f"{shown(name)}: {unpacked_bytes:,} bytes in {packed_bytes:,}, more than {limits.ratio:g} : 1"
    if total > limits.total_bytes:
        yield f"declares {total:,} bytes, more than {limits.total_bytes:,}"
    held = packed + sum(2 * len(member.orig_filename.encode()) for member in members) + 76 * len(members) + 22
    if size != held and total < zipfile.ZIP64_LIMIT and len(members) < zipfile.ZIP_FILECOUNT_LIMIT:
        yield f"has {size - held:,} bytes that belong to no member"
    names = [member.orig_filename for member in members]
    folders = {str(folder) for name in names for folder in PurePosixPath(name).parents}
    counts = Counter(path.casefold() for path in (*names, *folders))
    yield from (f"{shown(path)}: is there twice to some systems" for path, count in counts.items() if count > 1)


def _fault_of_member(member: zipfile.ZipInfo) -> str | None:
    """Why a member may not be there; None if it is a file of one relative path on every system."""
    if member.is_dir() or stat.S_IFMT(member.external_attr >> 16) not in (0, stat.S_IFREG):
        return "is no file: an archive has neither links nor folders"
    if member.flag_bits & 0x1 or member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return "is encrypted, or packed by a method that this workflow does not use"
    name = member.orig_filename
    is_shown = name.isprintable() and unicodedata.normalize("NFKC", name) == name
    is_odd = len(name.encode(errors="surrogatepass")) > _MOST_NAME_BYTES or any(map(_ODD.fullmatch, name.split("/")))
    return "its name is too long, no relative path, or another one on some systems" if is_odd or not is_shown else None
