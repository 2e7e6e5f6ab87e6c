"""Reads whatever it is pointed at: a file, a folder, an archive. Nothing in it ends the run.

Archives are read as streams: no member is written anywhere, so its name cannot harm.
"""

from __future__ import annotations

import lzma
import os
import re
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, BinaryIO, cast

from servelab.recorded.readers import Block, ReadError, UnknownResultError, scan_file, scan_stream
from servelab.recorded.readers.lines import decoded, visible_lines

_HEADING = re.compile(r"(#{1,6}) +(\S.*)")
_FENCE = re.compile(r"(?P<fence>`{3,}|~{3,})(?P<info>.*)$")
_PROMPT = re.compile(r"(?:\$|\+|#!cmd|❯|%) +(\S.*)")
_PROMPTS = ("$", "+", "#", "❯", "%")
_CLIENT = re.compile(
    r"(?:[A-Z_][A-Z0-9_]*=\S+ +)*(?:\S*/)?(?:vllm bench|guidellm|aiperf|genai-perf|evalscope|ais_bench|trtllm-bench"
    r"|llama-bench|llama-server|vllm serve|lmdeploy|trtllm-serve|sglang serve|genai-bench"
    r"|python3? (?:-m )?\S*(?:bench|profile_|serv)\S*)"
    r"(?:\s|$)"
)
_SPACES = "".join(character for character in map(chr, range(0x3001)) if character.isspace())
_BEFORE_LABEL, _AFTER_LABEL = f">*_#?+!-{_SPACES}", f"*_:：{_SPACES}"
_MOST_LABEL, _MOST_COMMAND = 300, 4000


@dataclass(frozen=True)
class LineContext:
    """What stands above a line. Each is None, or empty, if there is none."""

    headings: tuple[str, ...] = ()
    """From the outermost."""
    label: str | None = None
    """The last line of text before the fence, or before the line itself in a log without fences."""
    command: str | None = None
    """The last command above, back to the last heading; a continued one in one line."""
    fence: str | None = None
    """What stands after the opening fence."""


def places(texts: Iterable[str], lines: Iterable[int]) -> dict[int, LineContext]:
    """The place of each of some lines, numbered from 1."""
    wanted = sorted(set(lines))
    state = _State()
    found: dict[int, LineContext] = {}
    for number, line in visible_lines(texts):
        while wanted[len(found) :] and wanted[len(found)] <= number:
            found[wanted[len(found)]] = state.place()
        if len(found) == len(wanted):
            break
        state.step(line.strip()[: 2 * _MOST_COMMAND])
    return found | {number: state.place() for number in wanted[len(found) :]}


class _State:
    """What stands above a line, as lines pass."""

    def __init__(self) -> None:
        self._headings: list[tuple[int, str]] = []
        self._label: str | None = None
        self._command: str | None = None
        self._fence: str | None = None
        self._info: str | None = None
        self._continues = False

    def place(self) -> LineContext:
        return LineContext(tuple(text for _, text in self._headings), self._label, self._command, self._info)

    def step(self, text: str) -> None:
        """Takes one line into account."""
        bare = text[1:].strip() if text[:1] == ">" else text
        if self._continues and text and self._command is not None:
            self._continues = text.endswith("\\")
            self._command = " ".join([self._command, text.rstrip(" \\")])[:_MOST_COMMAND]
        elif bare[:1] in ("`", "~") and (fence := _FENCE.match(bare)):
            if self._fence is None:
                self._fence, self._info = fence["fence"], fence["info"].strip() or None
            elif fence["fence"].startswith(self._fence):
                self._fence = self._info = None
        elif bare[:1] == "#" and self._fence is None and (heading := _HEADING.match(bare)):
            self._add_heading(*heading.groups())
        elif (prompt := bare[:1] in _PROMPTS and _PROMPT.match(bare)) or _CLIENT.match(bare):
            command = prompt[1] if prompt else bare
            self._continues = command.endswith("\\")
            self._command = command.rstrip(" \\" if self._continues else " ")[:_MOST_COMMAND]
        elif self._fence is None and (label := bare.lstrip(_BEFORE_LABEL).rstrip(_AFTER_LABEL)):
            self._label = label[:_MOST_LABEL]

    def _add_heading(self, marks: str, name: str) -> None:
        if name.rstrip("#").endswith(" "):
            name = name.rstrip("#").rstrip(" ")
        while self._headings and self._headings[-1][0] >= len(marks):
            self._headings.pop()
        self._headings.append((len(marks), name[:_MOST_LABEL]))
        self._label = self._command = None


_MOST_FILES = 100_000
MOST_MEMBER_BYTES, MOST_ARCHIVE_BYTES = 1 << 30, 16 << 30
"""Unpacked, of one member and of all."""
_ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")
_SKIPPED = frozenset({".git", "__pycache__", "node_modules", ".venv"})
_NO_TEXT = frozenset(
    (".png", ".jpg", ".jpeg", ".gif", ".webp", ".svg", ".pdf", ".parquet", ".so", ".o", ".a", ".pyc", ".bin", ".pt")
) | {".pth", ".safetensors", ".gguf", ".h5", ".db", ".sqlite", ".whl"}
_DAMAGE = (OSError, EOFError, RuntimeError, ValueError, zipfile.BadZipFile, tarfile.TarError, zlib.error)


@dataclass
class Found:
    """What a file had."""

    name: str
    blocks: list[tuple[Block, LineContext]] = field(default_factory=list)
    errors: list[ReadError] = field(default_factory=list)
    """Results that could not be read."""
    notes: list[str] = field(default_factory=list)
    """What else was not read, and why."""


def read_anything(path: Path) -> Iterator[Found]:
    """What each file had, of a file, a folder or an archive (zip or tar); a file named alone must have a result."""
    if path.is_dir():
        for number, file in enumerate(_files(path), start=1):
            if number > _MOST_FILES:
                yield Found(str(path), notes=[f"{path}: more than {_MOST_FILES:,} files; the rest is not read"])
                return
            yield from _file(file)
    elif _is_archive(path.name) and path.is_file():
        yield from _archive(path)
    else:
        found = Found(str(path))
        _sort(found, scan_file(path, found.notes), must=True)
        if found.blocks and path.is_file():
            with path.open("rb") as log:
                _place(found, log)
        yield found


def _is_archive(name: str) -> bool:
    return name.lower().endswith(_ARCHIVES)


def _files(folder: Path) -> Iterator[Path]:
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in _SKIPPED)
        yield from (Path(parent) / name for name in sorted(files))


def _file(path: Path) -> Iterator[Found]:
    """What a file of a folder had."""
    if path.is_symlink() or not path.is_file() or path.suffix.lower() in _NO_TEXT:
        yield Found(str(path), notes=[f"{path}: not read: a link, no ordinary file, or not a text"])
    elif _is_archive(path.name):
        yield from _archive(path)
    else:
        try:
            with path.open("rb") as file:
                yield _read(str(path), file)
        except OSError as error:
            yield Found(str(path), errors=[ReadError(f"{path}: {error.strerror}")])


def _archive(path: Path) -> Iterator[Found]:
    try:
        total = 0
        for number, (name, size, stream) in enumerate(_members(path), start=1):
            total += size
            if number > _MOST_FILES or total > MOST_ARCHIVE_BYTES:
                yield Found(str(path), notes=[f"{path}: too many or too large members; from {name} on not read"])
                return
            yield _member(f"{path}!{name}", name, stream)
    except (*_DAMAGE, lzma.LZMAError, NotImplementedError) as error:
        yield Found(str(path), errors=[ReadError(f"{path}: the archive is damaged or not one: {error}")])


def _members(path: Path) -> Iterator[tuple[str, int, IO[bytes] | None]]:
    """Name, unpacked size and content of each; no content if it is encrypted, a link or a device."""
    if path.name.lower().endswith(".zip"):
        with zipfile.ZipFile(path) as zipped:
            for info in (each for each in zipped.infolist() if not each.is_dir()):
                yield info.filename, info.file_size, None if info.flag_bits & 1 else zipped.open(info)
        return
    with tarfile.open(path, "r|*") as archive:
        for member in (each for each in archive if not each.isdir()):
            yield member.name, member.size, archive.extractfile(member) if member.isreg() else None


def _member(shown: str, name: str, stream: IO[bytes] | None) -> Found:
    """Through a spooled copy without a name, as a member of a stream can be read only once."""
    if stream is None or Path(name).suffix.lower() in _NO_TEXT or _is_archive(name):
        return Found(shown, notes=[f"{shown}: not read: not a text, a link, encrypted, or an archive"])
    with tempfile.SpooledTemporaryFile(max_size=64 << 20) as copy:
        while block := stream.read(1 << 20):
            copy.write(block)
            if copy.tell() > MOST_MEMBER_BYTES:
                return Found(shown, notes=[f"{shown}: not read: more than {MOST_MEMBER_BYTES:,} bytes"])
        copy.seek(0)
        return _read(shown, cast("BinaryIO", copy))


def _read(name: str, file: BinaryIO) -> Found:
    found = Found(name)
    _sort(found, scan_stream(name, file, found.notes), must=False)
    if found.blocks:
        file.seek(0)
        _place(found, file)
    return found


def _sort(found: Found, scanned: Iterator[Block | ReadError], *, must: bool) -> None:
    for each in scanned:
        if isinstance(each, Block):
            found.blocks.append((each, LineContext()))
        elif isinstance(each, UnknownResultError) and not must:
            found.notes.append(str(each).partition(" Known: ")[0])
        else:
            found.errors.append(each)


def _place(found: Found, file: BinaryIO) -> None:
    at = places(decoded(file), (block.first_line for block, _ in found.blocks))
    found.blocks = [(block, at[block.first_line]) for block, _ in found.blocks]
