"""Finds blocks of rows between rules of `=`: with the title in the first rule, or in a line of its own."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import chain

from servelab.recorded.readers.pieces import MOST_PREFIX, SECTION, Entry, Found, Line, Piece, Prefix, Window

_TITLE = "(?:Serving|Offline Throughput) Benchmark Result"
_HEADER = re.compile(rf"(?<!=)(=+) {_TITLE} \1=?$")
_HALF_HEADER = re.compile(rf"===\s*{_TITLE}|{_TITLE}\s*===")
_FOOTER = "=" * 50
_TITLED = re.compile(r"(?<!=)={3,} [^=].*[^=] ={3,}$")
_SECTION_TITLE = re.compile(r"= (?P<title>[A-Z][A-Z +()]+)$")
_STATISTIC = re.compile(r"(.*) (P\d\d|MINIMUM|MAXIMUM|AVERAGE)")
_RULE = re.compile(r"(?<!=)={50,}$")
_VALUE = re.compile(r"[\d.]+|inf|nan")
_LEAST_WIDTH = 60
"""Characters of a rule with a title; other programs have narrower ones."""
_MOST_WIDTH = 2000
"""Characters of a line with a rule: to look for one in a longer line takes time that grows with its square."""
_HEADS = re.compile(r"mean(?: +P\d+(?:\.\d+)?)+")
_SEVERAL = re.compile(r"(.+?)(?:\(s\))? ?(?:percentile)?\((\w+(?:, \w+)+)\)")
"""A name, and the statistics that follow it: `per-token latency(s) percentile(50, 75)`."""
_WITH_UNIT = re.compile(r"(?<=\d) ?(?:s|token/s|req/s|req/min)$")
_NOTE = re.compile(r"(?<=\d)\s{2,}[^\d\s].*")
"""A remark that somebody wrote behind a figure: `3337.24   ← key metric`."""


def titled(lines: Window, at: int, line: Line, above: Line, is_known: Callable[[str], bool]) -> Found:
    """A block below a rule with a title, up to a rule of the same length.

    `is_known` recognises labels of console blocks: the end of a block without a header is an error, but a line of 50
    `=` in another program's log is not.
    """
    number, text = line[0], line[1].rstrip()
    if _is_header(text):
        header = _HEADER.search(text)
        if header and header.start() <= MOST_PREFIX:
            return _between("console", lines, at, Prefix(text[: header.start()]), len(header[0]), number)
        why = "its header is cut off, or line breaks are lost"
        return [_block("console", [], number, number, why)], at + 1
    if "===" not in text or len(line[1]) > _MOST_WIDTH:
        return None
    if (match := _TITLED.search(text)) and len(match[0]) >= _LEAST_WIDTH and match.start() <= MOST_PREFIX:
        return _between("frame", lines, at, Prefix(text[: match.start()]), len(match[0]), number)
    lead, footer, rest = text.partition(_FOOTER)
    end = Prefix(lead).end(above[1]) if footer and not rest else None
    if end is not None and is_known(_labelled(0, above[1][end:].strip()).name):
        return [_block("console", [], number, number, "its header is missing")], at + 1
    return None


def _is_header(text: str) -> bool:
    return "Benchmark Result" in text and _HALF_HEADER.search(text) is not None


def _between(form: str, lines: Window, begin: int, prefix: Prefix, width: int, first: int) -> Found:
    """The block from its header to its last rule, which is as wide."""
    footer, heads = "=" * width, list[str]()
    rows: list[Entry] = []
    at, number = begin, first
    for at, number, line in lines.near(begin):
        if _is_header(line):
            return [_block(form, rows, first, number - 1, f"line {number} begins another")], at
        content = prefix.rest(line)
        if content == footer:
            return [_block(form, rows, first, number)], at + 1
        if form == "frame" and _HEADS.fullmatch(content):
            heads = content.split()
        elif form == "frame":
            rows += _in_columns(number, content, heads)
        elif content:
            rows.append(_labelled(number, content))
    if lines.get(at + 1) is None:
        return [_block(form, rows, first, number, "its last line of `=` is missing")], at + 1
    why = "its last line of `=` does not follow within 2,000 lines and 1 MiB"
    return [_block(form, [], first, number, why)], at + 1


def _block(form: str, rows: list[Entry], first: int, last: int, why: str | None = None) -> Piece:
    """The piece of a block; `why` it is cut off, if it is."""
    names = {row.name: row.line for row in reversed(rows) if row.name}
    return Piece(
        form, first, last, dict(reversed(names.items())), rows, broken=f"the block is cut off: {why}" if why else None
    )


def sections(lines: Window, begin: int, line: Line, above: Line) -> Found:
    """A block of sections, each title between two rules, up to the end or the next first section."""
    opened = _section(lines, begin, line)
    if opened is None:
        return None
    prefix, first_title = opened
    rows: list[Entry] = []
    section = ""
    for at, number, text in chain([(begin, *line)], lines.near(begin)):
        if begun := _section(lines, at, (number, text)):
            section = begun[1]
            if rows and section == first_title:
                return [_block("frame", rows, line[0], number - 1)], at
            rows.append(Entry(f"= {section}", "", number + 1, raw=f"-- {section} --"))
        content = prefix.rest(text)
        label, colon, value = content.partition(":")
        label = _STATISTIC.sub(r"\2 \1", f"{section}: {label.strip()}")
        rows += [Entry(label, value.strip(), number, raw=content)] if colon else []
    return [_block("frame", rows, line[0], number)], at + 1


def _section(lines: Window, at: int, line: Line) -> tuple[Prefix, str] | None:
    """The prefix and the title of the section that begins with the rule in a line."""
    text = line[1]
    if "=====" not in text or len(text) > _MOST_WIDTH or not (rule := _RULE.search(text.rstrip())):
        return None
    prefix, below = Prefix(text[: min(rule.start(), MOST_PREFIX)]), lines.get(at + 1)
    match = _SECTION_TITLE.fullmatch(prefix.rest(below[1])) if below else None
    return (prefix, match["title"].strip()) if match else None


def printed_lines(lines: Window, begin: int, line: Line, above: Line) -> Found:
    """A block from `concurrency` and `elapsed_time` to the rate in a minute."""
    if "elapsed_time: " not in line[1] or (start := above[1].find("concurrency: ")) < 0:
        return None
    prefix = Prefix(above[1][: min(start, MOST_PREFIX)])
    rows = [row for number, text in (above, line) for row in _of_statistics(_labelled(number, prefix.rest(text)))]
    at = begin
    for at, number, text in lines.near(begin):  # noqa: B007 - where it ended
        if "elapsed_time: " in text or rows[-1].name.startswith("RPM"):
            break
        rows += _of_statistics(_labelled(number, prefix.rest(text)))
    return [_block("lines", rows, above[0], rows[-1].line)], max(at, begin + 1)


def _labelled(number: int, content: str) -> Entry:
    """A row `label: text`."""
    label, colon, text = content.partition(":")
    if not label or not colon or (text and not text[0].isspace()) or SECTION.fullmatch(content):
        return Entry("", "", number, raw=content)
    label, text = label.strip(), _NOTE.sub("", text.strip())
    return Entry(f"{label} (%)" if text.endswith("%") else label, text, number, raw=content)


def _of_statistics(row: Entry) -> list[Entry]:
    """A row for each statistic of a row `name(min, max, ave): number, number, number`, without units."""
    match, values = _SEVERAL.fullmatch(row.name), row.value.strip("[]").split(", ")
    if match and len(heads := match[2].split(", ")) == len(values):
        names = [f"{f'p{head}' if head.isdigit() else head} {match[1]}" for head in heads]
        return [row._replace(name=name, value=each.rstrip("s")) for name, each in zip(names, values, strict=True)]
    return [row._replace(value=_WITH_UNIT.sub("", row.value))] if row.name else []


def _in_columns(number: int, content: str, heads: list[str]) -> list[Entry]:
    """A name and the numbers after it, a row for each if they are statistics. Reads from the end: each word once."""
    words = content.split() if len(content) <= _MOST_WIDTH else []
    count = 0
    while count < len(words) - 1 and _VALUE.fullmatch(words[-1 - count]):
        count += 1
    name = content.rsplit(maxsplit=count)[0] if count else content
    if heads and len(heads) == count:
        pairs = zip(heads, words[-count:], strict=True)
        return [Entry(f"{head} {name}", "N/A" if each == "inf" else each, number, raw=content) for head, each in pairs]
    return [Entry(name, content[len(name) :].strip(), number, raw=content)] if content.strip("-") else []
