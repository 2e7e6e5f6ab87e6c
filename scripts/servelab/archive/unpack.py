"""Reads an untrusted archive: names, kinds and declared sizes are checked before anything is unpacked.

Members are streamed. Every fault is one `ServelabError` that names the archive and the member.
"""

from __future__ import annotations

import shutil
import stat
import tempfile
import unicodedata
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from servelab.core.errors import Outage, ServelabError

BLOCK_BYTES = 1 << 20
MOST_BYTES = 1024
MOST_PART_BYTES = 255
MOST_PARTS = 32
_RESERVED = {"CON", "PRN", "AUX", "NUL", *(f"{port}{number}" for port in ("COM", "LPT") for number in range(1, 10))}
"""Devices of Windows, with any suffix."""
_UNSEEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
"""Unicode categories of characters that are invisible or reverse the text."""


def shown(name: str) -> str:
    """A name for a message: control characters are escaped, long names are cut."""
    text = name.encode("unicode_escape").decode("ascii")
    return text if len(text) <= 160 else f"{text[:160]}…"


def trouble(name: str) -> str | None:
    """Why a member may not have this name; None if it may.

    A name is a relative path with `/`. It still leads to the same place after a system has normalised it (NFKC),
    dropped trailing dots and spaces, or interpreted a colon or a backslash.
    """
    if len(name.encode("utf-8", "surrogatepass")) > MOST_BYTES or name.count("/") >= MOST_PARTS:
        return f"its name is longer than {MOST_BYTES} bytes or has more than {MOST_PARTS} parts"
    if any(unicodedata.category(character) in _UNSEEN for character in name):
        return "its name has invisible characters"
    if unicodedata.normalize("NFC", name) != name:
        return "its name is not in Unicode's composed form (NFC)"
    for text in (name, unicodedata.normalize("NFKC", name)):
        if text.startswith("/"):
            return "its name is an absolute path"
        if "\\" in text or ":" in text:
            return "its name has a backslash or a colon, as paths of Windows have"
        for part in text.split("/"):
            if part in ("", ".", ".."):
                return "its name has an empty part, `.` or `..`"
            if part.strip(" ") != part or part.endswith("."):
                return "a part of its name begins or ends with a space, or ends with a dot"
            if part.partition(".")[0].rstrip().upper() in _RESERVED:
                return "a part of its name is a device of Windows"
            if len(part.encode()) > MOST_PART_BYTES:
                return f"a part of its name is longer than {MOST_PART_BYTES} bytes"
    return None


def first_trouble(names: Iterable[str]) -> tuple[str, str] | None:
    """The first name that is not allowed, and why; None if all are allowed.

    Two names are the same if some system treats them so: in another case, or in another form of Unicode.
    """
    spelt: dict[str, str] = {}
    for name in names:
        if why := trouble(name):
            return name, why
        parts = name.split("/")
        for depth in range(1, len(parts)):
            folder = "/".join(parts[:depth])
            taken = spelt.setdefault(_folded(folder), f"{folder}/")
            if taken != f"{folder}/":
                return name, f"its folder is the same as `{shown(taken)}` to some systems"
        if taken := spelt.get(_folded(name), ""):
            same = "occurs twice" if taken == name else f"is the same as `{shown(taken)}` to some systems"
            return name, f"its name {same}"
        spelt[_folded(name)] = name
    return None


def _folded(path: str) -> str:
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", path).casefold())


@dataclass(frozen=True)
class Limits:
    """Limits of an archive; a larger one is refused before it is unpacked."""

    members: int = 100_000
    member_bytes: int = 64 * 2**30
    total_bytes: int = 256 * 2**30
    """Of all members, unpacked."""
    ratio: float = 300.0
    """Unpacked ÷ packed size of a member. Logs reach about 50; deflate's maximum is 1,032."""
    ratio_from_bytes: int = 64 * 2**20
    """Smaller members may have any ratio: harmless one by one."""
    total_ratio: float = 100.0
    """The same of all members together; archives of studies have 3 to 20."""
    total_ratio_from_bytes: int = 256 * 2**20


class Archive:
    """An open archive whose names and declared sizes are checked; contents are checked as they are read."""

    def __init__(self, path: Path, zipped: zipfile.ZipFile) -> None:
        self.path, self._zipped = path, zipped
        self.members = {info.filename: info for info in zipped.infolist()}
        """By name, in the archive's order."""

    def blocks(self, name: str) -> Iterator[bytes]:
        """The content of a member in blocks of at most 1 MiB; it is complete and correct only if nothing raises.

        Raises `ServelabError` for an unknown name, and if content, size or CRC are not as declared.
        """
        if (member := self.members.get(name)) is None:
            raise self._fault(name, "is not in the archive")
        size = 0
        try:
            with self._zipped.open(member) as file:
                while block := file.read(BLOCK_BYTES):
                    size += len(block)
                    yield block
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, OSError, ValueError) as error:
            raise self._fault(name, f"cannot be unpacked: {error}") from None
        if size != member.file_size:
            raise self._fault(name, f"unpacks to {size:,} bytes, not the {member.file_size:,} it declares")

    def read(self, name: str, most_bytes: int = 64 * 2**20) -> bytes:
        """The whole content of a member; a member larger than `most_bytes` is refused."""
        if name in self.members and self.members[name].file_size > most_bytes:
            raise self._fault(name, f"is larger than {most_bytes:,} bytes")
        return b"".join(self.blocks(name))

    def write(self, folder: Path, names: Iterable[str] | None = None) -> None:
        """Writes members (all by default) below a folder that nobody else writes to; no file is overwritten.

        A faulty member is a `ServelabError`, a full disk an `Outage`; a file may then be incomplete.
        """
        chosen = list(self.members) if names is None else list(names)
        wanted_bytes = sum(self.members[name].file_size for name in chosen if name in self.members)
        free_bytes = shutil.disk_usage(folder).free
        if wanted_bytes > free_bytes:
            needs = f"unpacks to {wanted_bytes / 1e9:.1f} GB"
            raise Outage(f"{self.path}: {needs}, but {folder} has {free_bytes / 1e9:.1f} GB free")
        for name in chosen:
            file = folder / name
            try:
                file.parent.mkdir(parents=True, exist_ok=True)
                with file.open("xb") as output:
                    for block in self.blocks(name):
                        output.write(block)
            except OSError as error:
                raise Outage(f"{self.path}: {shown(name)}: cannot be written: {error.strerror or error}") from None

    def _fault(self, name: str, text: str) -> ServelabError:
        return ServelabError(f"{self.path}: {shown(name)}: {text}")


@contextmanager
def open_archive(path: Path, limits: Limits = Limits()) -> Iterator[Archive]:
    """An archive to read from, checked except for its contents; `ServelabError` names the fault and the member."""
    if not path.is_file():
        raise ServelabError(f"{path}: cannot be read: no such file")
    try:
        zipped = zipfile.ZipFile(path)
    except OSError as error:
        raise ServelabError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (zipfile.BadZipFile, NotImplementedError, OverflowError, ValueError) as error:
        raise ServelabError(f"{path}: no archive, or a damaged one: {error}") from None
    with zipped:
        _check(path, zipped.infolist(), limits)
        yield Archive(path, zipped)


def _check(path: Path, members: list[zipfile.ZipInfo], limits: Limits) -> None:
    if len(members) > limits.members:
        raise ServelabError(f"{path}: has more than {limits.members:,} members")
    for member in members:
        if why := _trouble_of_member(member, limits):
            raise ServelabError(f"{path}: {shown(member.filename)}: {why}")
    total, packed = (sum(getattr(member, size) for member in members) for size in ("file_size", "compress_size"))
    if total > limits.total_bytes:
        raise ServelabError(f"{path}: declares {total:,} bytes in all, more than {limits.total_bytes:,}")
    if total > max(limits.total_ratio * packed, limits.total_ratio_from_bytes):
        raise ServelabError(f"{path}: declares {total:,} bytes in {packed:,}: more than {limits.total_ratio:g} : 1")
    if found := first_trouble(member.orig_filename for member in members):
        raise ServelabError(f"{path}: {shown(found[0])}: {found[1]}")


def _trouble_of_member(member: zipfile.ZipInfo, limits: Limits) -> str | None:
    kind = stat.S_IFMT(member.external_attr >> 16)
    if member.is_dir() or kind not in (0, stat.S_IFREG):
        return "is no file: an archive has neither links nor folders"
    if member.flag_bits & 0x1:
        return "is encrypted"
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return "is packed by a method that this workflow does not use"
    if member.file_size > limits.member_bytes:
        return f"declares {member.file_size:,} bytes, more than are allowed"
    if member.file_size > max(limits.ratio * member.compress_size, limits.ratio_from_bytes):
        return f"declares {member.file_size:,} bytes in {member.compress_size:,}: more than {limits.ratio:g} : 1"
    return None


@contextmanager
def unpacked(archive: Archive, parent: Path, names: Iterable[str] | None = None) -> Iterator[Path]:
    """A temporary folder below `parent` with the checked contents of members (all by default)."""
    folder = Path(tempfile.mkdtemp(prefix=".unpacked-", dir=parent))
    try:
        archive.write(folder, names)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
