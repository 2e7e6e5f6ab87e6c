"""Reads whatever it is pointed at: a file or a folder. Nothing in it ends the run."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from servelab.recorded.readers import Block, ReadError, UnknownResultError, scan_file
from servelab.recorded.readers.lines import opened, visible_lines

_HEADING = re.compile(r"(#{1,6}) +(\S.*)")
_FENCE = re.compile(r"(?P<fence>`{3,}|~{3,})(?P<info>.*)")
_PROMPT = re.compile(r"(?:\$|\+|#!cmd|❯|%) +(\S.*)")
_CLIENT = re.compile(
    r"(?:[A-Z_][A-Z0-9_]*=\S+ +)*(?:\S*/)?(?:vllm bench|guidellm|aiperf|genai-perf|evalscope|ais_bench|trtllm-bench"
    r"|llama-bench|llama-server|vllm serve|lmdeploy|trtllm-serve|sglang serve|genai-bench"
    r"|python3? (?:-m )?\S*(?:bench|profile_|serv)\S*)"
    r"(?:\s|$)"
)
_SPACES = "".join(character for character in map(chr, range(0x3001)) if character.isspace())
_BEFORE_LABEL, _AFTER_LABEL = f">*_#?+!-{_SPACES}", f"*_:：{_SPACES}"
_MOST_LABEL, _MOST_COMMAND = 300, 4000
_SKIPPED = frozenset({".git", "__pycache__", "node_modules", ".venv"})
_NO_TEXT = re.compile(
    r"png|jpe?g|gif|webp|svg|pdf|parquet|so|o|a|pyc|bin|pth?|safetensors|gguf|h5|db|sqlite|whl|zip|tar|[tg]z|tgz|t?bz2|t?xz"
)
"""Ends of names of files that are not read in a folder."""


@dataclass(frozen=True)
class LineContext:
    """The texts above a line. Each is None, or empty, if there is none."""

    headings: tuple[str, ...] = ()
    """From the outermost."""
    label: str | None = None
    """The last line of text before the fence, or before the line itself in a log without fences."""
    command: str | None = None
    """The last command above, back to the last heading; a continued one in one line."""
    fence: str | None = None
    """The rest of the line of an opening fence."""


@dataclass
class Found:
    """The results of a file."""

    name: str
    blocks: list[tuple[Block, LineContext]] = field(default_factory=list)
    errors: list[ReadError] = field(default_factory=list)
    """Results that could not be read."""
    notes: list[str] = field(default_factory=list)
    """Other parts that were not read, and why."""


def read_anything(path: Path) -> Iterator[Found]:
    """The results of each file, of a file or a folder; a file named alone must have a result."""
    if not path.is_dir():
        yield _read(path, must=True)
        return
    for parent, folders, files in os.walk(path):
        folders[:] = sorted(name for name in folders if name not in _SKIPPED)
        for file in (Path(parent) / name for name in sorted(files)):
            if file.is_symlink() or not file.is_file() or _NO_TEXT.fullmatch(file.suffix.lower()[1:]):
                yield Found(str(file), notes=[f"{file}: not read: a link, no ordinary file, or not a text"])
            else:
                yield _read(file, must=False)


def _read(path: Path, *, must: bool) -> Found:
    found, blocks = Found(str(path)), []
    for each in scan_file(path, found.notes):
        if isinstance(each, Block):
            blocks.append(each)
        elif isinstance(each, UnknownResultError) and not must:
            found.notes.append(str(each).partition(" Known: ")[0])
        else:
            found.errors.append(each)
    at: dict[int, LineContext] = {}
    if blocks and path.is_file():
        with path.open("rb") as log:
            at = _contexts(opened(log)[0], {block.first_line for block in blocks})
    found.blocks = [(block, at.get(block.first_line, LineContext())) for block in blocks]
    return found


def _contexts(text: TextIO, wanted: Iterable[int]) -> dict[int, LineContext]:
    """The texts above each of some lines."""
    above, found, waiting = _Above(), {}, sorted(wanted, reverse=True)
    for number, line in visible_lines(text):
        while waiting and waiting[-1] <= number:
            found[waiting.pop()] = above.context()
        if not waiting:
            break
        above.step(line.strip()[: 2 * _MOST_COMMAND])
    return found


class _Above:
    """The texts above a line, as lines pass."""

    def __init__(self) -> None:
        self._headings: list[tuple[int, str]] = []
        self._label: str | None = None
        self._command: str | None = None
        self._fence: str | None = None
        self._info: str | None = None
        self._continues = False

    def context(self) -> LineContext:
        return LineContext(tuple(text for _, text in self._headings), self._label, self._command, self._info)

    def step(self, text: str) -> None:
        """Takes one line into account."""
        bare = text[1:].strip() if text[:1] == ">" else text
        if self._continues and text and self._command is not None:
            self._continues = text.endswith("\\")
            self._command = " ".join([self._command, text.rstrip(" \\")])[:_MOST_COMMAND]
        elif fence := _FENCE.fullmatch(bare):
            if self._fence is None:
                self._fence, self._info = fence["fence"], fence["info"].strip() or None
            elif fence["fence"].startswith(self._fence):
                self._fence = self._info = None
        elif self._fence is None and (heading := _HEADING.fullmatch(bare)):
            level, name, bare = len(heading[1]), heading[2], heading[2].rstrip("#")
            name = bare.rstrip(" ") if bare.endswith(" ") else name
            self._headings = [*(each for each in self._headings if each[0] < level), (level, name[:_MOST_LABEL])]
            self._label = self._command = None
        elif (prompt := _PROMPT.match(bare)) or _CLIENT.match(bare):
            command = prompt[1] if prompt else bare
            self._continues = command.endswith("\\")
            self._command = command.rstrip(" \\" if self._continues else " ")[:_MOST_COMMAND]
        elif self._fence is None and (label := bare.lstrip(_BEFORE_LABEL).rstrip(_AFTER_LABEL)):
            self._label = label[:_MOST_LABEL]
