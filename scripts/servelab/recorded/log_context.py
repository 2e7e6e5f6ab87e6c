"""Where a result stands in a page or log: the headings above it, the line before its fence, the command that ran."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field

from servelab.recorded.readers.lines import visible_parts

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
_EVENT = re.compile(
    r"^[^\S\n]*+>?[^\S\n]*+(?:`{3}|~{3}"
    r"|(#{1,6}) +\S(?![^\n]*\n+(?!\1#)#{1,6} +\S)|[$+❯%] +\S|#!cmd |[A-Z_][A-Z0-9_]*=\S"
    r"|(?:[^\s/]*/)*+(?:vllm|guidellm|aiperf|genai-|evalscope|ais_bench|trtllm-|llama-|lmdeploy|sglang|python))",
    re.MULTILINE,
)
"""How a line begins that can be more than text: a fence, a heading that the next line does not replace, a command."""
_SPACES = "".join(character for character in map(chr, range(0x3001)) if character.isspace())
_BEFORE_LABEL, _AFTER_LABEL = f">*_#?+!-{_SPACES}", f"*_:：{_SPACES}"
_MOST_LABEL, _MOST_COMMAND, _MOST_PLACES = 300, 4000, 100_000
_MOST_EVENTS, _SHORT = 10_000, 64
"""Headings, fences and commands of a text, and one more for so many characters; after that no place is known."""


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
    left = _MOST_EVENTS
    for numbers, shown, text in visible_parts(texts):
        left += len(text) // _SHORT
        if next_one == len(wanted) or left < 0:
            break
        events = _EVENT.finditer(text)
        index = position = event = 0
        at, stop = -1, bisect_left(numbers, wanted[next_one])
        while index < len(shown):
            if at < index:
                found_event = next(events, None)
                at = len(shown)
                if found_event is not None:
                    start = found_event.start()
                    event += text.count("\n", position, start)
                    at, position = event, start
            if index == stop:
                found[wanted[next_one]] = state.place()
                next_one += 1
                if next_one == len(wanted):
                    break
                stop = bisect_left(numbers, wanted[next_one], index)
            elif index == at or state.continues:
                left -= 1
                if left < 0:
                    state = _State()
                    break
                if shown[index]:
                    _step(state, shown[index].strip())
                index += 1
            else:
                end = min(at, stop)
                if end == stop:  # the line before may be a heading, if this one looks like another
                    last = next((each for each in range(end - 1, index - 1, -1) if shown[each]), index)
                    _label(state, shown, index, last)
                    _step(state, shown[last].strip())
                else:
                    _label(state, shown, index, end)
                index = end
    for line_number in wanted[next_one:]:
        found[line_number] = state.place()
    return found


def _label(state: _State, lines: list[str], start: int, end: int) -> None:
    """The last text of lines that are no event."""
    if state.fence is not None:
        return
    for index in range(end - 1, start - 1, -1):
        bare = lines[index].strip().removeprefix(">")
        if text := bare.lstrip(_BEFORE_LABEL).rstrip(_AFTER_LABEL):
            state.label = text[:_MOST_LABEL]
            return


def _step(state: _State, text: str) -> None:
    if state.continues and state.command is not None:
        state.continues = text.endswith("\\")
        if len(state.command) < _MOST_COMMAND:
            state.command = " ".join([state.command, text.rstrip(" \\")])[:_MOST_COMMAND]
        return
    bare = text[1:].strip() if text[:1] == ">" else text
    mark = bare[:1]
    if mark in ("`", "~") and (fence := _FENCE.match(bare)):
        if state.fence is None:
            state.fence, state.info = fence["fence"], fence["info"].strip() or None
        elif fence["fence"].startswith(state.fence):
            state.fence = state.info = None
        return
    if mark == "#" and state.fence is None and (heading := _HEADING.match(bare)):
        marks, name = heading.groups()
        if name[-1] == "#" and (before := name.rstrip("#")).endswith(" "):
            name = before.rstrip(" ")
        while state.headings and state.headings[-1][0] >= len(marks):
            state.headings.pop()
        state.headings.append((len(marks), name[:_MOST_LABEL]))
        state.label = state.command = None
        return
    prompt = _PROMPT.match(bare) if mark in _PROMPTS else None
    if prompt or _CLIENT.match(bare):
        command = prompt[1] if prompt else bare
        state.continues = command.endswith("\\")
        state.command = (command.rstrip(" \\") if state.continues or command[-1] == " " else command)[:_MOST_COMMAND]
    else:
        _label(state, [text], 0, 1)
