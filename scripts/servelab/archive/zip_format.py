"""The one form of an archive's zip: a build writes it and a reader refuses any other. No byte of it is free.

Members follow each other from the first byte on, in the order of the directory. Times, attributes and system are
constants. The comment of a member's entry in the directory is the sha256 of the member's bytes in the zip, its own
header included, because a deflated stream has bits that no CRC covers. Any zip program reads it.

    with zipfile.ZipFile(path, "w") as archive:
        with archive.open(entry(name, size_bytes), "w") as member: ...
    seal(path)

Python's `zipfile` writes the headers and the directory. To check a zip, `zipfile` reads the directory, writes it again
from the few values that a member may choose, and the two must be equal (decisions/0010).
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import stat
import struct
import zipfile
from dataclasses import dataclass
from pathlib import Path

MARK = b"servelab archive 1"
"""The archive's comment: its last bytes."""
STORED, DEFLATED = zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED
BLOCK_BYTES = 1 << 20

_END_BYTES = 22 + len(MARK)
"""Size of the last record of a small archive."""
_MOST_ENTRY_BYTES = 4096
"""No entry whose name is allowed is larger."""
_SIZES_AT = 18
"""Where the two sizes of 4 bytes each are in a member's own header."""
_ZIP64_VERSION = 45
"""The format's release that has zip64."""
_UNIX, _MODE = 3, stat.S_IFREG | 0o644
_COMMENT = re.compile(rb"sha256:([0-9a-f]{64})")
_ENCRYPTED = 0x1 | 0x40 | 0x2000
_KINDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFDIR: "a folder",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
}
_NOT_OURS = "does not end as an archive of this workflow does: another file, truncated, or with data added"


class Malformed(Exception):  # noqa: N818 (the reader adds the file's name)
    """The zip does not have this form: what is wrong, and at which member if it is one member's fault."""

    def __init__(self, text: str, member: str | None = None) -> None:
        super().__init__(text)
        self.text, self.member = text, member


@dataclass(frozen=True)
class Member:
    """One file of an archive, by its entry in the directory and its own header, which agree."""

    name: str
    method: int
    crc32: int
    packed_bytes: int
    """Size of its data in the zip."""
    size_bytes: int
    """Size of its content."""
    offset: int
    """Where its header begins in the zip."""
    data_offset: int
    sha256: str
    """Of its bytes in the zip, from `offset` to `end`."""

    @property
    def end(self) -> int:
        """Where its data ends in the zip."""
        return self.data_offset + self.packed_bytes


class _Entry(zipfile.ZipInfo):
    """An entry whose header is the same with every release of Python."""

    def FileHeader(self, zip64: bool | None = None) -> bytes:  # noqa: N802 (zipfile's name)
        """The header; with `zip64`, sizes are only in the extra field, which Python before 3.11.4 does for large ones.

        `ValueError` if a size needs zip64 and it is not given: those releases raise, later ones write what none reads.
        """
        if not zip64 and max(self.file_size, self.compress_size) > zipfile.ZIP64_LIMIT:
            raise ValueError("a size needs zip64")
        if zip64:
            self.create_version = self.extract_version = max(_ZIP64_VERSION, self.extract_version)
        header = super().FileHeader(zip64)
        return header[:_SIZES_AT] + b"\xff" * 8 + header[_SIZES_AT + 8 :] if zip64 else header


def entry(name: str, size_bytes: int, *, method: int = DEFLATED) -> zipfile.ZipInfo:
    """What to open a new member with; `size_bytes` is its content's size, which decides on zip64."""
    info = _Entry(name, (1980, 1, 1, 0, 0, 0))
    info.compress_type, info.file_size = method, size_bytes
    info.create_system, info.external_attr = _UNIX, _MODE << 16
    return info


def seal(path: Path) -> None:
    """Puts the sha256 of each member's bytes, and the mark, into the directory of a zip that was just written."""
    with zipfile.ZipFile(path, "a") as archive, path.open("rb") as file:
        infos = archive.infolist()
        ends = [*(info.header_offset for info in infos[1:]), archive.start_dir]
        for info, end in zip(infos, ends, strict=True):
            info.comment = b"sha256:" + sha256_of(file.fileno(), info.header_offset, end).encode()
        archive.comment = MARK


def sha256_of(descriptor: int, start: int, end: int) -> str:
    """sha256 of a part of an open file, in hex."""
    digest = hashlib.sha256()
    while start < end and (block := os.pread(descriptor, min(BLOCK_BYTES, end - start), start)):
        digest.update(block)
        start += len(block)
    return digest.hexdigest()


def read_members(descriptor: int, most_members: int) -> list[Member]:
    """The members of an open archive, in order; `Malformed` where a byte outside their data is not as it must be.

    Nothing is unpacked. At most `most_members` entries and headers are read.
    """
    size = os.fstat(descriptor).st_size
    last = os.pread(descriptor, _END_BYTES, max(0, size - _END_BYTES))
    if len(last) < _END_BYTES or not last.startswith(b"PK\x05\x06") or not last.endswith(MARK):
        raise Malformed(_NOT_OURS)
    try:
        with zipfile.ZipFile(_Bounded(descriptor, most_members * _MOST_ENTRY_BYTES)) as archive:
            infos, directory_at = archive.infolist(), archive.start_dir
    except (zipfile.BadZipFile, NotImplementedError, OSError, OverflowError, ValueError, struct.error) as error:
        raise Malformed(f"its directory is damaged: {error}") from None
    if len(infos) > most_members:
        raise Malformed(f"has {len(infos):,} members, more than the {most_members:,} that are allowed")
    if infos and (shift := infos[0].header_offset):  # zipfile corrects offsets by what was added or removed
        text = f"{abs(shift):,} bytes were {'added' if shift > 0 else 'removed'} before its end"
        raise Malformed(text, _first_changed(descriptor, infos, directory_at, shift))
    members: list[Member] = []
    written: list[zipfile.ZipInfo] = []
    for info in infos:
        again = _again(info)
        member = _member(descriptor, info, again, expected=members[-1].end if members else 0)
        if member.end > directory_at:
            raise Malformed("its data reaches into the directory", member.name)
        members.append(member)
        written.append(again)
    if (members[-1].end if members else 0) != directory_at:
        raise Malformed("has bytes that belong to no member")
    _compare_directory(os.pread(descriptor, size - directory_at, directory_at), written, directory_at)
    return members


class _Bounded(io.FileIO):
    """An open file that limits how many bytes one call may read."""

    def __init__(self, descriptor: int, most_bytes: int) -> None:
        super().__init__(descriptor, "rb", closefd=False)
        self._most_bytes = most_bytes

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > self._most_bytes:
            raise Malformed(f"has a directory of {size:,} bytes, more than are allowed")
        return super().read(size)


class _Tail(io.BytesIO):
    """The part of a file that begins at `start`."""

    def __init__(self, start: int) -> None:
        super().__init__()
        self._start = start

    def tell(self) -> int:
        return self._start + super().tell()

    def seek(self, position: int, whence: int = 0, /) -> int:
        return self._start + super().seek(position - self._start, whence)


def _again(info: zipfile.ZipInfo) -> zipfile.ZipInfo:
    """The entry as a build writes it, with the values that a member may choose."""
    name = info.orig_filename
    if info.flag_bits & _ENCRYPTED:
        raise Malformed("is encrypted", name)
    if info.compress_type not in (STORED, DEFLATED):
        raise Malformed(f"is packed by method {info.compress_type}; an archive has only 0 and 8", name)
    kind = stat.S_IFMT(info.external_attr >> 16)
    if info.create_system == _UNIX and kind != stat.S_IFREG:
        raise Malformed(f"is {_KINDS.get(kind, 'no file')}; an archive has only files", name)
    if not _COMMENT.fullmatch(info.comment):
        raise Malformed("its entry in the directory has no sha256 of its bytes", name)
    again = entry(name, info.file_size, method=info.compress_type)
    again.filename = name  # also where it has a NUL, at which ZipInfo cuts it
    again.CRC, again.compress_size = info.CRC, info.compress_size
    again.header_offset, again.comment = info.header_offset, info.comment
    return again


def _member(descriptor: int, info: zipfile.ZipInfo, again: zipfile.ZipInfo, expected: int) -> Member:
    """The member of an entry, whose own header must be the one that a build writes at the `expected` place."""
    name, offset = again.filename, info.header_offset
    try:
        header = again.FileHeader(zip64=info.file_size * 1.05 > zipfile.ZIP64_LIMIT)  # as ZipFile.open decides
    except ValueError:
        raise Malformed(f"has {info.compress_size:,} bytes of data, more than its content packs to", name) from None
    try:
        found = os.pread(descriptor, len(header), offset)
    except (OverflowError, OSError):  # an offset that no file has
        found = b""
    if not found.startswith(b"PK\x03\x04"):
        raise Malformed("has no header where the directory points to", name)
    if offset != expected:
        what = "overlaps the member before it" if offset < expected else "has bytes before it that belong to no member"
        raise Malformed(what, name)
    if found != header:
        raise Malformed(
            "its own header does not match its entry, or has values that this workflow does not write", name
        )
    sha256 = info.comment.decode().removeprefix("sha256:")
    return Member(
        name, info.compress_type, info.CRC, info.compress_size, info.file_size, offset, offset + len(header), sha256
    )


def _compare_directory(found: bytes, written: list[zipfile.ZipInfo], start: int) -> None:
    """`Malformed` unless the bytes from the directory on are those that a build writes."""
    if found == _directory(written, start):
        return
    position = 0
    for info in written:
        own = _directory([info], 0)[:-_END_BYTES]
        if not found.startswith(own, position):
            raise Malformed("its entry in the directory has values that this workflow does not write", info.filename)
        position += len(own)
    raise Malformed("its last record is not that of an archive of this workflow")


def _directory(infos: list[zipfile.ZipInfo], start: int) -> bytes:
    """The directory of these entries and the records behind it, as `zipfile` writes them from `start` on."""
    tail = _Tail(start)
    with zipfile.ZipFile(tail, "w") as archive:
        archive.filelist = infos
        archive.comment = MARK
    return tail.getvalue()


def _first_changed(descriptor: int, infos: list[zipfile.ZipInfo], directory_at: int, shift: int) -> str | None:
    """The first member whose bytes are not those of its entry, in an archive that is `shift` bytes too long."""
    starts = [info.header_offset - shift for info in infos]
    for info, start, end in zip(infos, starts, [*starts[1:], directory_at - shift], strict=True):
        if info.comment != b"sha256:" + sha256_of(descriptor, max(0, start), end).encode():
            return info.orig_filename
    return None
