"""Turns HTML into the lines of Markdown that say the same, each with its line in the source."""

from __future__ import annotations

import re
from html.parser import HTMLParser

_SKIPPED = frozenset({"script", "style", "svg", "noscript", "button", "template", "head"})
_BLOCKS = frozenset(
    {"p", "div", "section", "article", "ul", "ol", "dl", "dt", "dd", "details", "summary", "blockquote", "main"}
) | {"figure", "figcaption", "header", "footer", "nav", "aside", "table", "thead", "tbody", "hr", "body"}
_HEADING = re.compile(r"h[1-6]")
_ANCHOR = re.compile(r"[¶§🔗]")
_FENCE = "~" * 8
"""No text of a page has it."""
_SPACE = re.compile(r"\s+")

Lines = list[tuple[int, str]]
"""Lines with the line of the source they come from."""


def is_html(text: str) -> bool:
    """Whether a text is a page of HTML and not Markdown with tags in it."""
    start = text[:4096].lstrip("\ufeff \t\r\n").lower()
    return start.startswith(("<!doctype html", "<html")) or ("<head" in start and "<body" in text[:100_000].lower())


def markdown_of(text: str, first_line: int = 1) -> Lines:
    """The lines of Markdown of some HTML; tags that are not closed end where their parent or the text does."""
    converter = _Converter(first_line)
    converter.feed(text)
    converter.close()
    converter.finish()
    return converter.lines


class _Converter(HTMLParser):
    def __init__(self, first_line: int) -> None:
        super().__init__(convert_charrefs=True)
        self.lines: Lines = []
        self._first = first_line - 1
        self._skipping: list[str] = []
        self._pre = 0
        self._text: list[str] = []
        self._begins = first_line
        self._prefix = ""
        self._row: list[str] | None = None
        self._in_cell = False
        self._rows = 0

    @property
    def _line(self) -> int:
        return self._first + self.getpos()[0]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self._skipping:
            if tag == self._skipping[-1]:
                self._skipping.append(tag)
            return
        if tag in _SKIPPED:
            self._skipping.append(tag)
        elif tag == "pre":
            if not self._pre:
                self._flush()
                self._put(_FENCE, self._line)
            self._pre += 1
        elif tag == "br" and self._pre:
            self._text.append("\n")
        elif self._pre:
            return
        elif tag == "br":
            if self._row is not None:
                self._text.append(" <br> ")
            else:
                self._flush()
        elif tag == "code":
            self._text.append("`")
        elif tag == "tr":
            self._end_row()
            self._flush()
            self._row = []
        elif tag in ("td", "th") and self._row is not None:
            self._end_cell()
            self._in_cell = True
        elif tag == "table":
            self._flush()
            self._rows = 0
        elif _HEADING.fullmatch(tag):
            self._flush()
            self._prefix = "#" * int(tag[1]) + " "
        elif tag == "li":
            self._flush()
            self._prefix = "- "
        elif tag in _BLOCKS and self._row is None:
            self._flush()

    def handle_endtag(self, tag: str) -> None:
        if self._skipping:
            if tag == self._skipping[-1]:
                self._skipping.pop()
        elif tag == "pre" and self._pre:
            self._pre -= 1
            if not self._pre:
                self._end_pre()
        elif self._pre:
            return
        elif tag == "code":
            self._text.append("`")
        elif tag in ("td", "th"):
            self._end_cell()
        elif tag == "tr" and self._row is not None:
            self._end_row()
        elif tag == "table":
            self._end_row()
            self._put("", self._line)
        elif tag == "li" or _HEADING.fullmatch(tag) or (tag in _BLOCKS and self._row is None):
            self._flush()

    def handle_data(self, data: str) -> None:
        if self._skipping or (not self._text and not self._pre and not data.strip()):
            return
        if not self._text:
            self._begins = self._line
        self._text.append(data)

    def finish(self) -> None:
        """Ends what the text left open."""
        if self._pre:
            self._end_pre()
        self._end_row()
        self._flush()

    def _put(self, text: str, line: int) -> None:
        self.lines.append((line, text))

    def _take(self) -> str:
        text = "".join(self._text)
        self._text = []
        return text

    def _flush(self) -> None:
        text = _SPACE.sub(" ", _ANCHOR.sub("", self._take())).strip()
        if text:
            self._put("", self._begins)
            self._put(self._prefix + text, self._begins)
            self._put("", self._begins)
        if text or self._prefix.startswith("#"):
            self._prefix = ""

    def _end_pre(self) -> None:
        begins, self._pre = self._begins, 0
        text = self._take()
        if text.startswith("\n"):
            text, begins = text[1:], begins + 1
        for number, line in enumerate(text.rstrip("\n").split("\n")):
            self._put(line, begins + number)
        self._put(_FENCE, self._line)

    def _end_cell(self) -> None:
        if self._row is not None and self._in_cell:
            self._row.append(_SPACE.sub(" ", self._take()).strip().replace("|", "\\|"))
        self._in_cell = False

    def _end_row(self) -> None:
        if self._row is None:
            return
        self._end_cell()
        if self._row:
            self._put("| " + " | ".join(self._row) + " |", self._line)
            self._rows += 1
            if self._rows == 1:
                self._put("|" + "---|" * len(self._row), self._line)
        self._row = None
