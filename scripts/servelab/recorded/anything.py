"""Reads whatever it is pointed at: a file or a folder. Nothing in it ends the run."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TextIO

from servelab.recorded.readers import Block, ReadError, UnknownResultError, scan_file
from servelab.recorded.readers.lines import opened, visible_lines

_HEADING = re.compile(r"(#{1,6}) +(\S.*)")
_FENCE = re.compile(r"(`{3,}|~{3,}).*")
_PROMPT = re.compile(r"(?:\$|\+|#!cmd|❯|%) +(\S.*)")
_CLIENT = re.compile(
    r"(?:[A-Z_][A-Z0-9_]*=\S+ +)*(?:\S*/)?(?:vllm bench|guidellm|aiperf|genai-perf|evalscope|ais_bench|trtllm-bench"
    r"|llama-bench|llama-server|vllm serve|lmdeploy|trtllm-serve|sglang serve|genai-bench"
    r"|python3? (?:-m )?\S*(?:bench|profile_|serv)\S*)"
    r"(?:\s|$)"
)
_MOST_HEADING, _MOST_COMMAND = 300, 4000
_SKIPPED = frozenset({".git", "__pycache__", "node_modules", ".venv"})
_NO_TEXT = re.compile(
    r"png|jpe?g|gif|webp|svg|pdf|parquet|so|o|a|pyc|bin|pth?|safetensors|gguf|h5|db|sqlite|whl|zip|tar|[tg]z|tgz|t?bz2|t?xz"
)
"""Ends of names of files that are not read in a folder."""


class TextAbove(NamedTuple):
    """The texts above a line."""

    headings: tuple[str, ...] = ()
    """From the outermost."""
    command: str | None = None
    """The last command since the last heading, in one line; None if there is none."""


@dataclass
class Found:
    """The results of a file."""

    name: str
    blocks: list[tuple[Block, TextAbove]] = field(default_factory=list)
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
    at: dict[int, TextAbove] = {}
    if blocks and path.is_file():
        with path.open("rb") as log:
            at = _places(opened(log)[0], {block.first_line for block in blocks})
    found.blocks = [(block, at.get(block.first_line, TextAbove())) for block in blocks]
    return found


def _places(text: TextIO, wanted: Iterable[int]) -> dict[int, TextAbove]:
    """The texts above each of some lines."""
    found, waiting = dict[int, TextAbove](), sorted(wanted, reverse=True)
    headings, command, fence, continues = list[tuple[int, str]](), None, None, False
    for number, line in visible_lines(text):
        while waiting and waiting[-1] <= number:
            found[waiting.pop()] = TextAbove(tuple(name for _, name in headings), command)
        if not waiting:
            break
        whole = line.strip()[: 2 * _MOST_COMMAND]
        bare = whole[1:].strip() if whole[:1] == ">" else whole
        if continues and whole and command is not None:
            continues = whole.endswith("\\")
            command = " ".join([command, whole.rstrip(" \\")])[:_MOST_COMMAND]
        elif mark := _FENCE.fullmatch(bare):
            if fence is None or mark[1].startswith(fence):
                fence = None if fence else mark[1]
        elif fence is None and (heading := _HEADING.fullmatch(bare)):
            level = len(heading[1])
            name = re.sub(r" +#+$", "", heading[2])[:_MOST_HEADING]
            headings = [*(each for each in headings if each[0] < level), (level, name)]
            command = None
        elif (prompt := _PROMPT.match(bare)) or _CLIENT.match(bare):
            command = prompt[1] if prompt else bare
            continues = command.endswith("\\")
            command = command.rstrip(" \\" if continues else " ")[:_MOST_COMMAND]
    return found
