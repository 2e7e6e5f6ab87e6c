"""Where a result stands in a page or log: the headings above it, the line before its fence, the command that ran."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from servelab.recorded.readers.lines import visible_lines

_HEADING = re.compile(r"(?P<marks>#{1,6}) +(?P<text>\S.*?)(?: +#+)?$")
_FENCE = re.compile(r"(?P<fence>`{3,}|~{3,})(?P<info>.*)$")
_PROMPT = re.compile(r"(?:\$|\+|#!cmd|❯|%) +(?P<command>\S.*)$")
_CLIENT = re.compile(
    r"(?:[A-Z_][A-Z0-9_]*=\S+ +)*(?:\S*/)?(?:vllm bench|guidellm|aiperf|genai-perf|evalscope|ais_bench|trtllm-bench"
    r"|llama-bench|llama-server|vllm serve|lmdeploy|trtllm-serve|sglang serve|genai-bench"
    r"|python3? (?:-m )?\S*(?:bench|profile_|serv)\S*)"
    r"(?:\s|$)"
)
_LABEL = re.compile(r"[>\s*_#?+!-]*(?P<text>.*?)[\s*_:：]*$")
_MOST_LABEL, _MOST_COMMAND, _MOST_PLACES = 300, 4000, 100_000


@dataclass(frozen=True)
class Place:
    """What stands above a line. Each is None, or empty, if there is none."""

    headings: tuple[str, ...] = ()
    """From the outermost."""
    label: str | None = None
    """The last line of text before the fence, or before the line itself in a log without fences."""
    command: str | None = None
    """The last command above, back to the last heading; a continued one in one line."""
    fence: str | None = None
    """What stands after the opening fence."""


@dataclass
class _State:
    headings: list[tuple[int, str]] = field(default_factory=list)
    label: str | None = None
    command: str | None = None
    fence: str | None = None
    info: str | None = None
    continues: bool = False

    def place(self) -> Place:
        return Place(tuple(text for _, text in self.headings), self.label, self.command, self.info)


def places(texts: Iterable[str], lines: Iterable[int]) -> dict[int, Place]:
    """The place of each of some lines, numbered from 1."""
    wanted = sorted(set(lines))[:_MOST_PLACES]
    state, found, next_one = _State(), {}, 0
    for number, line in visible_lines(texts):
        while next_one < len(wanted) and wanted[next_one] <= number:
            found[wanted[next_one]] = state.place()
            next_one += 1
        if next_one == len(wanted):
            break
        _step(state, line.strip())
    for line_number in wanted[next_one:]:
        found[line_number] = state.place()
    return found


def _step(state: _State, text: str) -> None:
    if state.continues and state.command is not None:
        state.continues = text.endswith("\\")
        state.command = " ".join([state.command, text.rstrip(" \\")])[:_MOST_COMMAND]
        return
    bare = text.removeprefix(">").strip()
    if fence := _FENCE.match(bare):
        if state.fence is None:
            state.fence, state.info = fence["fence"], fence["info"].strip() or None
        elif fence["fence"].startswith(state.fence):
            state.fence = state.info = None
        return
    if state.fence is None and (heading := _HEADING.fullmatch(bare)):
        level = len(heading["marks"])
        state.headings = [*(each for each in state.headings if each[0] < level), (level, heading["text"][:_MOST_LABEL])]
        state.label = state.command = None
        return
    prompt = _PROMPT.fullmatch(bare)
    if prompt or _CLIENT.match(bare):
        command = prompt["command"] if prompt else bare
        state.continues = command.endswith("\\")
        state.command = command.rstrip(" \\")[:_MOST_COMMAND]
    elif state.fence is None and bare and (label := _LABEL.fullmatch(bare)) and label["text"]:
        state.label = label["text"][:_MOST_LABEL]
