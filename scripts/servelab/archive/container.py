"""The one form of an archive's zip, which a build writes and a reader asks for: no byte of it is free.

Members lie one behind the other from the first byte on, in the order of the directory. Times, attributes and system are
constants. The comment of a member's entry in the directory is the sha256 of its bytes in the zip, its own header
included: a deflated stream has bits that no CRC covers. Any zip program reads it.

    with zipfile.ZipFile(path, "w") as archive:
        with archive.open(entry(name, size_bytes), "w") as member: ...
    seal(path)

Formats: APPNOTE.TXT 6.3.10, in the choice that Python's `zipfile` makes.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import struct
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

MARK = b"servelab archive 1"
"""The archive's comment: its last bytes."""
STORED, DEFLATED = zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED
BLOCK_BYTES = 1 << 20

_LOCAL, _ENTRY, _END = struct.Struct("<4s2B4HL2L2H"), struct.Struct("<4s4B4HL2L5H2L"), struct.Struct("<4s4H2LH")
_END64, _LOCATOR = struct.Struct("<4sQ2H2L4Q"), struct.Struct("<4sLQL")
_WIDE_ABOVE, _WIDE, _MANY = (1 << 31) - 1, 0xFFFFFFFF, 0xFFFF
"""Above the first, sizes and offsets stand in 8 bytes of their own (zip64), and the second in their place."""
_TIME, _DATE = 0, 0b0000000_0001_00001
_MODE = stat.S_IFREG | 0o644
_UNIX, _UTF8 = 3, 0x800
_PLAIN_VERSION, _WIDE_VERSION = 20, 45
_COMMENT = re.compile(rb"sha256:([0-9a-f]{64})")
_MOST_ENTRY_BYTES = _ENTRY.size + 4096
"""More than any entry has whose name is allowed."""
_ENCRYPTED = 0x1 | 0x40 | 0x2000
_KINDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFDIR: "a folder",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
}


class Malformed(Exception):  # noqa: N818 (the reader adds which file it is of)
    """The zip is not of this form: the member it shows at, if any, and what is wrong."""

    def __init__(self, text: str, member: str | None = None) -> None:
        super().__init__(text)
        self.text, self.member = text, member


class _Entry(NamedTuple):
    """The fixed part of an entry of the directory."""

    signature: bytes
    made_by: int
    system: int
    needed: int
    reserved: int
    flags: int
    method: int
    time: int
    date: int
    crc32: int
    packed: int
    size: int
    name_bytes: int
    extra_bytes: int
    comment_bytes: int
    disk: int
    internal: int
    attributes: int
    offset: int


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


def entry(name: str, size_bytes: int, *, method: int = DEFLATED) -> zipfile.ZipInfo:
    """What to open a new member with; `size_bytes` is its content's size, which decides on zip64."""
    info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
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

    Nothing is unpacked. What is read is at most `most_members` entries and headers.
    """
    size = os.fstat(descriptor).st_size
    count, directory_bytes, offset = _read_end(descriptor, size)
    if count > most_members:
        raise Malformed(f"has {count:,} members, more than the {most_members:,} that are allowed")
    if directory_bytes > count * _MOST_ENTRY_BYTES:
        raise Malformed(f"says of its directory that it has {directory_bytes:,} bytes for {count:,} members")
    if shift := size - (offset + directory_bytes + len(_end(count, directory_bytes, offset))):
        directory = _read(descriptor, offset + shift, directory_bytes)
        what = "more bytes than belong to it" if shift > 0 else "bytes missing"
        raise Malformed(f"has {abs(shift):,} {what}", _first_changed(descriptor, directory, offset))
    directory = _read(descriptor, offset, directory_bytes)
    members: list[Member] = []
    position = 0
    for _ in range(count):
        member, length = _read_entry(descriptor, directory, position)
        expected = members[-1].end if members else 0
        if member.offset != expected:
            what = "overlaps the member before it" if member.offset < expected else "has bytes before it of no member"
            raise Malformed(what, member.name)
        if member.end > offset:
            raise Malformed("its data reaches into the directory", member.name)
        members.append(member)
        position += length
    if position != directory_bytes or (members[-1].end if members else 0) != offset:
        raise Malformed("has bytes that belong to no member")
    return members


def _read_end(descriptor: int, size: int) -> tuple[int, int, int]:
    """Number of members, size and offset of the directory."""
    tail_bytes = _END.size + len(MARK)
    tail = _read(descriptor, max(0, size - tail_bytes), tail_bytes)
    if len(tail) < tail_bytes or not tail.startswith(b"PK\x05\x06") or not tail.endswith(MARK):
        raise Malformed("does not end as an archive of this workflow does: another file, truncated, or with data added")
    _, _, _, _, count, directory_bytes, offset, _ = _END.unpack_from(tail)
    wide_at = size - tail_bytes - _LOCATOR.size - _END64.size
    if wide_at >= 0 and (wide := _read(descriptor, wide_at, _END64.size)).startswith(b"PK\x06\x06"):
        count, directory_bytes, offset = _END64.unpack(wide)[-3:]
    expected = _end(count, directory_bytes, offset)
    if _read(descriptor, size - len(expected), len(expected)) != expected:
        raise Malformed("its last record is not that of an archive of this workflow")
    return count, directory_bytes, offset


def _end(count: int, directory_bytes: int, offset: int) -> bytes:
    """The records behind the directory."""
    wide = b""
    if count > _MANY or offset > _WIDE_ABOVE or directory_bytes > _WIDE_ABOVE:
        told = (_WIDE_VERSION, _WIDE_VERSION, 0, 0, count, count, directory_bytes, offset)
        wide = _END64.pack(b"PK\x06\x06", _END64.size - 12, *told)
        wide += _LOCATOR.pack(b"PK\x06\x07", 0, offset + directory_bytes, 1)
    few = min(count, _MANY)
    last = (few, few, min(directory_bytes, _WIDE), min(offset, _WIDE), len(MARK))
    return wide + _END.pack(b"PK\x05\x06", 0, 0, *last) + MARK


def _read_entry(descriptor: int, directory: bytes, position: int) -> tuple[Member, int]:
    """The member of the entry at a position in the directory, and the entry's length."""
    if len(directory) < position + _ENTRY.size:
        raise Malformed("its directory has fewer entries than it says")
    told = _Entry._make(_ENTRY.unpack_from(directory, position))
    if told.signature != b"PK\x01\x02":
        raise Malformed("its directory is damaged")
    start = position + _ENTRY.size
    end = start + told.name_bytes + told.extra_bytes + told.comment_bytes
    raw = directory[start : start + told.name_bytes]
    extra = directory[start + told.name_bytes : end - told.comment_bytes]
    comment = directory[end - told.comment_bytes : end]
    name = _decoded(raw, told.flags)
    if told.flags & _ENCRYPTED:
        raise Malformed("is encrypted", name)
    if told.method not in (STORED, DEFLATED):
        raise Malformed(f"is packed by method {told.method}; an archive has 0 and 8 alone", name)
    kind = stat.S_IFMT(told.attributes >> 16)
    if told.system == _UNIX and kind != stat.S_IFREG:
        raise Malformed(f"is {_KINDS.get(kind, 'no file')}; an archive has files alone", name)
    size, packed, offset = _widened(extra, told, name)
    found = _COMMENT.fullmatch(comment)
    if len(directory) < end or found is None:
        raise Malformed("its entry in the directory has no sha256 of its bytes", name)
    version, data_offset = _read_local(
        descriptor, offset, raw, (told.flags, told.method, told.crc32, packed, size), name
    )
    member = Member(name, told.method, told.crc32, packed, size, offset, data_offset, found[1].decode())
    if _entry_bytes(member, version) != directory[position:end]:
        raise Malformed("its entry in the directory has values that this workflow does not write", name)
    return member, end - position


def _decoded(raw: bytes, flags: int) -> str:
    try:
        return raw.decode("utf-8" if flags & _UTF8 else "ascii")
    except UnicodeDecodeError:
        raise Malformed("its name is not in UTF-8", repr(raw)[2:-1]) from None


def _widened(extra: bytes, told: _Entry, name: str) -> tuple[int, int, int]:
    """Size, packed size and offset, from the field of zip64 where the entry points to it; it has no other field."""
    values = (told.size, told.packed, told.offset)
    length = 8 * sum(value == _WIDE for value in values)
    if len(extra) != (length + 4 if length else 0) or not extra.startswith(
        struct.pack("<2H", 1, length) if length else b""
    ):
        raise Malformed("has extra fields, which no member of an archive has", name)
    wide = iter(struct.unpack(f"<{length // 8}Q", extra[4:]))
    size, packed, offset = (next(wide) if value == _WIDE else value for value in values)
    return size, packed, offset


def _read_local(
    descriptor: int, offset: int, raw_name: bytes, told: tuple[int, int, int, int, int], name: str
) -> tuple[int, int]:
    """The version in a member's own header and where its data begins; `told` is what the directory says of it."""
    header = _read(descriptor, offset, _LOCAL.size)
    if len(header) < _LOCAL.size or not header.startswith(b"PK\x03\x04"):
        raise Malformed("has no header where the directory points to", name)
    _, version, _, flags, method, _, _, crc32, packed, size, name_bytes, extra_bytes = _LOCAL.unpack(header)
    start = offset + _LOCAL.size
    rest = _read(descriptor, start, name_bytes + extra_bytes)
    extra = rest[name_bytes:]
    if extra and (len(extra) != 20 or not extra.startswith(struct.pack("<2H", 1, 16))):
        raise Malformed("has extra fields, which no member of an archive has", name)
    if extra:
        size, packed = struct.unpack("<2Q", extra[4:])
    if (flags, method, crc32, packed, size) != told or rest[:name_bytes] != raw_name:
        raise Malformed("its own header says otherwise than its entry in the directory", name)
    return version, start + len(rest)


def _entry_bytes(member: Member, local_version: int) -> bytes:
    """The entry of a member in the directory."""
    size, packed, offset = member.size_bytes, member.packed_bytes, member.offset
    wide: list[int] = []
    if size > _WIDE_ABOVE or packed > _WIDE_ABOVE:
        wide += [size, packed]
        size = packed = _WIDE
    if offset > _WIDE_ABOVE:
        wide.append(offset)
        offset = _WIDE
    extra = struct.pack(f"<2H{len(wide)}Q", 1, 8 * len(wide), *wide) if wide else b""
    version = _WIDE_VERSION if wide or local_version == _WIDE_VERSION else _PLAIN_VERSION
    name, comment = member.name.encode(), b"sha256:" + member.sha256.encode()
    flags = 0 if member.name.isascii() else _UTF8
    packing = (flags, member.method, _TIME, _DATE, member.crc32, packed, size)
    lengths = (len(name), len(extra), len(comment), 0, 0)
    head = _ENTRY.pack(b"PK\x01\x02", version, _UNIX, version, 0, *packing, *lengths, _MODE << 16, offset)
    return head + name + extra + comment


def _read(descriptor: int, offset: int, length: int) -> bytes:
    """A part of the file; shorter where the file ends before."""
    if offset < 0 or length <= 0:
        return b""
    try:
        return os.pread(descriptor, length, offset)
    except (OverflowError, OSError):  # an offset that no file has
        return b""


def _first_changed(descriptor: int, directory: bytes, directory_offset: int) -> str | None:
    """Of an archive that is too long or too short: the first member whose bytes are not those that its entry tells."""
    told: list[tuple[int, str, bytes]] = []
    position = 0
    while position + _ENTRY.size <= len(directory):
        entry = _Entry._make(_ENTRY.unpack_from(directory, position))
        if entry.signature != b"PK\x01\x02":
            return None
        start = position + _ENTRY.size
        position = start + entry.name_bytes + entry.extra_bytes + entry.comment_bytes
        name = directory[start : start + entry.name_bytes].decode(errors="replace")
        told.append((entry.offset, name, directory[position - entry.comment_bytes : position]))
    ends = [*(offset for offset, _, _ in told[1:]), directory_offset]
    for (offset, name, comment), end in zip(told, ends, strict=False):
        if comment != b"sha256:" + sha256_of(descriptor, offset, end).encode():
            return name
    return None
