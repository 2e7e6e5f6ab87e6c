"""Zips made byte by byte, any field as a test wants it; sealed as an archive is, so that only that field is wrong."""

from __future__ import annotations

import hashlib
import stat
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from servelab.archive.zip_format import MARK

REGULAR = (stat.S_IFREG | 0o644) << 16


@dataclass
class File:
    """A member; what is None is as it should be. `local` and `entry` change fields of its header and of its entry."""

    name: str | bytes
    content: bytes = b"content\n"
    method: int = 8
    packed: bytes | None = None
    size: int | None = None
    crc32: int | None = None
    flags: int | None = None
    mode: int = REGULAR
    system: int = 3
    local_extra: bytes = b""
    entry_extra: bytes = b""
    before: bytes = b""
    """Bytes in front of its header."""
    offset: int | None = None
    comment: bytes | None = None
    local: dict[str, Any] = field(default_factory=dict)
    entry: dict[str, Any] = field(default_factory=dict)


def deflated(content: bytes, level: int = 6) -> bytes:
    """A raw deflate stream."""
    packer = zlib.compressobj(level, zlib.DEFLATED, -zlib.MAX_WBITS)
    return packer.compress(content) + packer.flush()


def made_zip(
    files: Sequence[File], *, count: int | None = None, end: bytes | None = None, comment: bytes = MARK
) -> bytes:
    """The bytes of a zip of these files; `count` and `end` (behind the directory) change what its last record says."""
    body, directory = b"", b""
    for file in files:
        body += file.before
        packed = (
            file.packed if file.packed is not None else deflated(file.content) if file.method == 8 else file.content
        )
        name = file.name if isinstance(file.name, bytes) else file.name.encode()
        told: dict[str, Any] = {
            "flags": file.flags if file.flags is not None else 0 if name.isascii() else 0x800,
            "method": file.method,
            "crc32": zlib.crc32(file.content) if file.crc32 is None else file.crc32,
            "packed": len(packed),
            "size": len(file.content) if file.size is None else file.size,
            "name": name,
            "time": 0,
            "date": 0x21,
            "version": 20,
        }
        header = _local({**told, "extra": file.local_extra, **file.local})
        offset = len(body) if file.offset is None else file.offset
        digest = hashlib.sha256(header + packed if file.offset is None else b"").hexdigest()
        comment_bytes = f"sha256:{digest}".encode() if file.comment is None else file.comment
        told |= {"mode": file.mode, "system": file.system, "extra": file.entry_extra, "offset": offset}
        directory += _entry({**told, "comment": comment_bytes, **file.entry})
        body += header + packed
    many = len(files) if count is None else count
    last = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, many, many, len(directory), len(body), len(comment)) + comment
    return body + directory + (last if end is None else end)


def _local(told: dict[str, Any]) -> bytes:
    numbers = [told[key] for key in ("flags", "method", "time", "date", "crc32", "packed", "size")]
    lengths = (len(told["name"]), len(told["extra"]))
    return struct.pack("<4s2B4H3L2H", b"PK\3\4", told["version"], 0, *numbers, *lengths) + told["name"] + told["extra"]


def _entry(told: dict[str, Any]) -> bytes:
    numbers = [told[key] for key in ("flags", "method", "time", "date", "crc32", "packed", "size")]
    tail = told["name"] + told["extra"] + told["comment"]
    lengths = (
        len(told["name"]),
        len(told["extra"]),
        len(told["comment"]),
        told.get("disk", 0),
        told.get("internal", 0),
    )
    version = (told.get("made_by", told["version"]), told["system"], told["version"], 0)
    head = struct.pack("<4s4B4H3L5H2L", b"PK\1\2", *version, *numbers, *lengths, told["mode"], told["offset"])
    return head + tail
