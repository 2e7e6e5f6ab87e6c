"""Why a server failed, from its log: the line that explains it, its reason, and whose fault it is.

Signs (`servelab.engines.failure_signs`) are compared first with the exceptions in the log, those of the deepest process
first, then with its other lines. Lines that only report another process's failure count where nothing else does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from textwrap import dedent

from servelab.engines.failure_signs import (
    COLLECTIVES,
    COMMON,
    DEATH,
    ERROR,
    FAULTS,
    HANG,
    HELD_BY_OTHERS,
    KILLED,
    NOISE,
    OUTER,
    PASSED_ON,
    WRAPPER,
    Kind,
    Sign,
)

_MOST_LINES, _MOST_MESSAGE, _MOST_OF_LINE = 12, 600, 250
_MORE = 5
"""Lines below an exception, or after another line with a sign, that belong to its message."""
_MOST_CAUSES, _MOST_PLAIN = 200, 3000
"""Exceptions that are looked at, and other lines at each end of the log."""

_FREE = re.compile(r"free memory on device( \S+)? \((?P<free>[\d.]+)/(?P<total>[\d.]+) GiB\)", re.IGNORECASE)
_TOTAL = re.compile(r"total capacity of ([\d.]+) GiB", re.IGNORECASE)
_PROCESS, _OWN = re.compile(r"Process \d+ has ([\d.]+) GiB"), re.compile(r"this process has [\d.]+ GiB", re.IGNORECASE)
_BY_PYTORCH = re.compile(r"([\d.]+) GiB is allocated by PyTorch", re.IGNORECASE)
_SHARE_OF_OTHERS = 0.1
"""Of a device's memory; contexts of CUDA and a desktop take less."""

_HARMLESS = re.compile(r"\b(DEBUG|INFO|WARN(ING)?|[DIW])\b")
"""Log levels at which no engine reports the reason of a failure."""
_LEVEL = re.compile(r"^\[(ERROR|CRITICAL|FATAL|E)\] ?(\w+\(\d+,[^)]*\):\S+ )?(\[\S+:\d+\]\d* ?)?", re.IGNORECASE)
"""Begins lines of Ascend's libraries."""
_TAG = re.compile(r"\(([^()]+) pid=\d+[^()]*\)|\b([TDPE]P\d+)\b|\[(RANK \d+)\]|\[(rank\d+)\]")
"""The process in a line's prefix."""
_EXCEPTION = re.compile(
    r"^([A-Za-z_][\w.]*\.)?([A-Za-z_]\w*(Error|Exception|Fault|Failure|Timeout|Interrupt|Refused)|OutOf\w+|Exception)\b(:|$)"
)
_COLOUR, _FRAME = re.compile(r"\x1b\[[\d;]*m"), re.compile(r'\s*File "')
_BARE = re.compile(r"^[\w.]+(Error|Exception):?$")
_LOUD = re.compile(r"\b(ERROR|CRITICAL|FATAL)\b|\[E\]")
_ENDS_MESSAGE = re.compile(r"^(traceback|the above exception|during handling|process \S+:|$)", re.IGNORECASE)

Message = Sequence[str]
"""A line that may explain a failure, and the lines after it that belong to it."""


@dataclass(frozen=True)
class Explanation:
    """The failure that a log tells."""

    kind: Kind
    reason: str | None
    """None if no sign was found."""
    message: str
    """The line that explains it, with what belongs to it; an environment's fault in words first."""
    lines: list[str]
    """At most 12 lines that show it, the most specific first."""
    remedy: str = ""
    has_cause: bool = False
    """Whether the log has a cause inside the engine, so that nothing from outside need have ended it."""


def explain(log: Iterable[str], own: Sequence[Sign], prefix: re.Pattern[str]) -> Explanation:
    """Explains a failure by the engine's `own` signs and the common ones; `prefix` comes before a line's text."""
    lines = dedent(_COLOUR.sub("", "\n".join(log))).split("\n")
    if all(OUTER.match(line) for line in lines if line.strip()):
        lines = [OUTER.sub("", line, count=1) for line in lines]
    read = list(_read(lines, prefix))
    said = [(tag, text) for tag, text, level in read if level and text]
    exceptions = _exceptions([(tag, text) for tag, text, level in read if level])
    causes = [message for message in exceptions if not WRAPPER.search(message[0])][:_MOST_CAUSES]
    everything = _plain(said)
    plain = [message for message in everything if not WRAPPER.search(message[0])]
    errors = [message for message in plain if ERROR.search(message[0])]
    ends = [*causes, *(message for message in plain if DEATH.search(message[0]))]
    killed = _first([KILLED], [message[:1] for message in everything])
    signs = (*FAULTS, *own, *COMMON)
    # what is "not supported" on the way to another end is no reason for it
    of_lines = [sign for sign in signs if sign.reason != "unsupported_argument" or not (ends or killed)]
    alone = [each[:1] for each in plain if not _EXCEPTION.match(each[0])]
    found = (
        _first(signs, causes)
        or _first([COLLECTIVES], causes[:1] or plain)
        or _first(of_lines, [each for each in alone if ERROR.search(each[0])])
        or _first(of_lines, [each for each in alone if not ERROR.search(each[0])])
    )
    if found:
        if found[0].general:
            special = [*FAULTS, *(sign for sign in COMMON if sign.reason in ("crashed", "out_of_memory"))]
            found = _first(special, alone) or found
        return _explained(*found, [*causes, *errors], plain)
    if ends:
        return Explanation("result", "crashed", _joined(ends[0]), _shown(ends), has_cause=True)
    if killed:
        return _explained(*killed, everything, everything)
    loud = {text for _, text, level in read if level == "error" and not _ENDS_MESSAGE.match(text)}
    errors = errors or [message for message in plain if message[0] in loud]
    if found := _first([HANG], [[text] for _, text, _ in read]):
        return _explained(*found, errors, [])
    if errors:
        return Explanation("result", None, _joined([errors[0][0], *errors[0][1:]]), _shown(errors))
    if wrapped := exceptions or [message[:1] for message in everything if WRAPPER.search(message[0])]:
        return Explanation("result", "crashed", _joined(wrapped[0]), _shown(wrapped))
    last = [[text] for _, text, _ in reversed(read) if text][:_MOST_LINES]
    return Explanation("result", None, _joined(last[0]) if last else "", _shown(last))


def _read(log: Iterable[str], prefix: re.Pattern[str]) -> Iterator[tuple[str, str, str]]:
    """(process, text, level) of each line: `error`, `unknown`, or nothing if it says nothing of a failure.

    Calls in tracebacks are left out; an exception without a text gets the code that raised it.
    """
    frame, code = -1, ""
    for line in log:
        passed_on = PASSED_ON.sub("", line.rstrip())
        text = _LEVEL.sub("", prefix.sub("", passed_on))
        indent = len(text) - len(text.lstrip())
        frame = indent if _FRAME.match(text) else frame if indent > frame else -1
        if frame >= 0:
            code = code if set(text) <= set(" ^~") else text.strip()
            continue
        if _BARE.match(text.strip()) and code:
            text, passed_on = f"{text}: {code}", f"{passed_on}: {code}"
        before = passed_on[: len(passed_on) - len(text)]
        found = _TAG.findall(line[: line.rfind(before) + len(before)])
        tag = next(filter(None, found[-1]), "") if found else ""
        harmless = _HARMLESS.search(before) or NOISE.search(passed_on) or NOISE.search(text)
        yield tag, text.strip(), "" if harmless else "error" if _LOUD.search(before) else "unknown"


def _exceptions(said: Sequence[tuple[str, str]]) -> list[Message]:
    """Exceptions with the lines of their message, the deepest process's first; each once."""
    found: list[tuple[int, int, list[str]]] = []
    last: dict[str, list[str] | None] = {}
    for number, (tag, text) in enumerate(said):
        message = last.get(tag)
        if _EXCEPTION.match(text):
            depth = 2 if "APIServer" in tag else 0 if "orker" in tag else 1
            last[tag] = [text]
            found.append((depth, number, last[tag] or []))
        elif message is None or len(message) > _MORE or _ENDS_MESSAGE.match(text) or WRAPPER.search(text):
            last[tag] = None
        else:
            message.append(text)
    ordered = [message for _, _, message in sorted(found, key=lambda each: each[:2])]
    return list({tuple(message): message for message in ordered}.values())


def _plain(said: Sequence[tuple[str, str]]) -> list[Message]:
    """Lines near the log's ends, each with the process's next lines if they report errors."""
    if len(said) > 2 * _MOST_PLAIN:
        said = [*said[:_MOST_PLAIN], *said[-_MOST_PLAIN:]]
    messages: list[Message] = []
    for number, (tag, text) in enumerate(said):
        next_lines = [other for of, other in said[number + 1 : number + _MORE] if of == tag and ERROR.search(other)]
        messages.append([text, *next_lines])
    return messages


def _first(signs: Iterable[Sign], messages: Sequence[Message]) -> tuple[Sign, Message] | None:
    """The first sign that a message shows, and that message."""
    for sign in signs:
        for message in messages:
            if any(sign.pattern.search(line) for line in message):
                return sign, message
    return None


def _explained(sign: Sign, message: Message, others: Sequence[Message], plain: Sequence[Message]) -> Explanation:
    """A failure with the sign's line first, then the rest of its message."""
    if sign.reason == "out_of_memory" and any(map(_held_by_others, message)):
        sign = HELD_BY_OTHERS
    if len(message) == 1:
        message = next((each for each in plain if each[0] == message[0]), message)
    showing = next((line for line in message if sign.pattern.search(line)), message[0])
    alike = [[line] for each in (*others, *plain) for line in each if sign.pattern.search(line)]
    text = _joined([showing, *message, *dict.fromkeys(line for each in alike for line in each)])
    return Explanation(
        kind=sign.kind,
        reason=sign.reason,
        message=f"{sign.fault}: {text}" if sign.fault else text,
        lines=_shown([[showing], message, *alike, *others]),
        remedy=sign.remedy,
        has_cause=sign.kind != "outage" and not sign.weak,
    )


def _held_by_others(line: str) -> bool:
    """Whether a message about memory shows that other processes hold a part of the device's."""
    if found := _FREE.search(line):
        return float(found["free"]) < (1 - _SHARE_OF_OTHERS) * float(found["total"])
    total, others = _TOTAL.search(line), list(map(float, _PROCESS.findall(line)))
    if not total or not others:
        return False
    by_pytorch = _BY_PYTORCH.search(line)  # in a container, its own process is one of the others
    mine = [held for held in others if by_pytorch and held >= float(by_pytorch[1])]
    own = 0.0 if _OWN.search(line) else min(mine, default=sum(others))
    return sum(others) - own > _SHARE_OF_OTHERS * float(total[1])


def _joined(message: Message) -> str:
    return " ".join(dict.fromkeys(line.strip()[:_MOST_OF_LINE] for line in message))[:_MOST_MESSAGE]


def _shown(messages: Iterable[Message]) -> list[str]:
    lines = (line.strip() for message in messages for line in message)
    return list(dict.fromkeys(line for line in lines if not _ENDS_MESSAGE.match(line)))[:_MOST_LINES]
