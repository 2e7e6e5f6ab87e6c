"""Walks a page and notes what stands where: serving commands, results, failures, tables and lines of text."""

from __future__ import annotations

import io
import re
from collections import deque
from dataclasses import dataclass, field
from itertools import islice

from servelab.recorded.draft.own_logs import dedented, own_log
from servelab.recorded.draft.page import Code, Heading, Line, Page, Table
from servelab.recorded.draft.serving import Found, commands_in, options_in, unknown_command
from servelab.recorded.readers import Block, ReadError, scan_stream

_NOISE = re.compile(
    r"(?:(?:the|full|raw|our|backend|engine|extra|baseline|optimi[sz]ed|final|default|serving|server|serve|launch|start(?:up)?|deploy\w*"
    r"|benchmark\w*|bench|test|client|load|vllm bench|sglang)\s+)*(?:script|command|cmd|result|output|log|detail|config"
    r"(?:uration)?|parameter|param|argument|arg|flag|option|number|click to expand|show"
    r"|expand|summary|benchmark\w*)s?(?:\s*\(.*\))?",
    re.IGNORECASE,
)
FAILED = re.compile(
    r"\b(?:crash\w*|oom|out[- ]of[- ]memory|cuda error|seg(?:mentation )?fault|core dumped|killed|hangs?|failed to \w+"
    r"|unsupported|not supported|does(?:n't| not) (?:start|support|work|run)|traceback|\w*error)\b",
    re.IGNORECASE,
)
_MOST_COMMANDS = 2000
"""Commands of a page that are looked at."""
_ANNOUNCES = re.compile(
    r"\b(?:serving|server|serve|launch|start(?:up)?|deploy\w*)\b.*\b(?:script|command|cmd)\b", re.IGNORECASE
)
_BULLET = re.compile(r"(?:[-*+•>]|\d+[.)])\s+")
_FRAGMENT = re.compile(r"(?:--?[a-zA-Z]|[A-Z_][A-Z0-9_]*=)\S*")
_SENDS = re.compile(r"\b(?:client|bench\w*|load|dataset)\b", re.IGNORECASE)
_MOST_KEPT = 20_000
"""Lines around a result that cannot be read that are kept."""
_MOST_LABEL, _MOST_COMMENTS, _MOST_SENTENCE, _MOST_PROFILE = 80, 4, 300, 40


@dataclass(frozen=True)
class Spot:
    """Where something stands."""

    file: str
    line: int
    """Line in its file."""
    path: tuple[str, ...] = ()
    """Headings, from the outermost."""
    sections: tuple[int, ...] = ()
    """Number of each heading, of all that were met."""
    label: str | None = None
    """The last short line of text since the heading that says what follows."""
    above: str = ""
    """The line of text right before."""
    before: str = ""
    """The last lines of text since the heading or code before."""

    @property
    def section(self) -> int:
        """The innermost heading."""
        return self.sections[-1] if self.sections else 0

    @property
    def where(self) -> str:
        """The innermost heading, or the file."""
        return self.path[-1] if self.path else self.file


@dataclass(eq=False)
class Serving:
    """A serving command as a page prints it."""

    text: str
    spot: Spot
    is_rewritten: bool
    printed: str | None = None
    """Options without a program, which the page prints instead of a command."""


@dataclass(frozen=True)
class Client:
    """A load client's command as a page prints it."""

    text: str
    spot: Spot


@dataclass
class Result:
    """A result of a load client."""

    block: Block
    spot: Spot
    log: str
    """Its lines."""
    comments: tuple[str, ...] = ()
    """What stands right above it in its fence."""
    serving: Serving | None = None
    """The command above it."""
    client: Client | None = None

    @property
    def fragment(self) -> str | None:
        """The options that the line above it prints, if it prints any."""
        return next((each for each in self.comments if _FRAGMENT.match(each)), None)


@dataclass(frozen=True)
class Failure:
    """A line that says that a command did not work."""

    message: str
    spot: Spot
    serving: Serving | None
    fragment: str | None


@dataclass(frozen=True)
class Unplaced:
    """What the draft does not use, and why."""

    spot: Spot
    what: str
    why: str
    log: str | None = None
    """The result itself, where it is one."""


@dataclass
class Observed:
    """All of a page or a folder."""

    servings: list[Serving] = field(default_factory=list)
    clients: list[Client] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    tables: list[tuple[Table, list[int], Spot]] = field(default_factory=list)
    """A table, the source line of each row, and where it stands."""
    lines: list[tuple[str, Spot]] = field(default_factory=list)
    headings: list[tuple[str, Spot]] = field(default_factory=list)
    profiles: list[tuple[str, Spot]] = field(default_factory=list)
    """Code without command and result, in one line: it may say what was sent."""
    unplaced: list[Unplaced] = field(default_factory=list)
    title: str | None = None


class Walker:
    """Notes what a page says, part by part; pages of a folder one after the other."""

    def __init__(self, observed: Observed) -> None:
        self.observed = observed
        self._headings: list[tuple[int, str, int]] = []
        self._met = 0
        self._label: str | None = None
        self._label_is_used = False
        self._above = ""
        self._is_full = False
        self._before: list[str] = []
        self._failures_met: set[tuple[Serving, str | None]] = set()
        self._serving: tuple[Serving, int] | None = None
        """The last command, and the level of the heading it stands under."""
        self._client: tuple[Client, int] | None = None

    def enter(self, level: int, text: str, spot_file: str, line: int) -> None:
        """A heading begins."""
        self._met += 1
        self._headings = [*(each for each in self._headings if each[0] < level), (level, text, self._met)]
        self._label, self._label_is_used, self._above, self._before = None, False, "", []
        for name in ("_serving", "_client"):
            held = getattr(self, name)
            if held and held[1] >= level:
                setattr(self, name, None)
        self.observed.headings.append((text, self._spot(spot_file, line)))
        if self.observed.title is None:
            self.observed.title = text

    def walk(self, page: Page, *, is_log: bool) -> None:
        """Notes all parts of a page."""
        blocks, covered = self._scan(page)
        waiting = deque(blocks)
        for part in page.parts:
            while waiting and waiting[0].first_line - 1 < _index(part):  # a result outside of code
                self._result(page, waiting.popleft(), None, [], is_log=False)
            if isinstance(part, Code):
                inside = []
                while waiting and waiting[0].first_line - 1 <= part.last:
                    inside.append(waiting.popleft())
                self._code(page, part, inside, is_log)
            elif isinstance(part, Heading):
                self.enter(part.level, part.text, page.name, page.lines[part.index][0])
            elif isinstance(part, Table):
                if part.rows[0][0] not in covered:
                    spot = self._spot(page.name, page.lines[part.rows[0][0]][0])
                    sources = [page.lines[index][0] for index, _ in part.rows]
                    self.observed.tables.append((part, sources, spot))
            elif part.index not in covered:
                self._text(page, part)
        for block in waiting:
            self._result(page, block, None, [], is_log=False)
        if page.is_cut:
            spot = self._spot(page.name, len(page.lines))
            self.observed.unplaced.append(Unplaced(spot, "the rest of the file", "the file is too large"))

    def _scan(self, page: Page) -> tuple[list[Block], set[int]]:
        """The results of a page, and the indices of the lines they cover."""
        blocks: list[Block] = []
        covered: set[int] = set()
        notes: list[str] = []
        stream = io.BytesIO(page.text.encode("utf-8", errors="surrogateescape"))
        for found in scan_stream(page.name, stream, notes):
            if isinstance(found, Block):
                blocks.append(found)
                covered.update(range(found.first_line - 1, found.last_line))
            elif "no result of a load client found" not in str(found):
                self.observed.unplaced.append(_unread(page, found))
        return sorted(blocks, key=lambda block: block.first_line), covered

    def _spot(self, file: str, line: int) -> Spot:
        return Spot(
            file,
            line,
            tuple(text for _, text, _ in self._headings),
            tuple(number for _, _, number in self._headings),
            self._label,
            self._above,
            " ".join(self._before),
        )

    @property
    def _level(self) -> int:
        return self._headings[-1][0] if self._headings else 0

    def _text(self, page: Page, part: Line) -> None:
        source = page.lines[part.index][0]
        for found in commands_in([(source, part.text.strip("`"))], 0, 0):
            self._command(page, found, source)
            return
        text = _BULLET.sub("", part.text).strip("` ")
        self.observed.lines.append((part.text, self._spot(page.name, source)))
        if self._serving and FAILED.search(text) and len(text) <= 200 and self._serving[0] not in self._served():
            self._failed(text, source, page.name, None)
        self._above = text
        self._before = [*self._before, text[:_MOST_SENTENCE]][-3:]
        text = text.rstrip(":：").strip()
        if text and len(text) <= _MOST_LABEL and not text.endswith((".", "。")) and not _NOISE.fullmatch(text):
            self._label, self._label_is_used = text, False

    def _served(self) -> list[Serving]:
        return (
            [self.observed.results[-1].serving] if self.observed.results and self.observed.results[-1].serving else []
        )

    def _command(self, page: Page, found: Found, source: int) -> None:
        spot = self._spot(page.name, source)
        if len(self.observed.servings) + len(self.observed.clients) == _MOST_COMMANDS:
            if not self._is_full:
                why = f"only {_MOST_COMMANDS} are looked at"
                self.observed.unplaced.append(Unplaced(spot, "commands from here on", why))
            self._is_full = True
            return
        if found.is_client:
            self._client = (Client(found.text, spot), self._level)
            self.observed.clients.append(self._client[0])
            return
        self._serves(found, source, page.name, None)

    def _serves(self, found: Found, source: int, file: str, printed: str | None) -> None:
        if self._label_is_used:  # the label said what came before
            self._label, self._label_is_used = None, False
        serving = Serving(found.text, self._spot(file, source), found.is_rewritten, printed)
        self._serving = (serving, self._level)
        self.observed.servings.append(serving)

    def _no_command(self, page: Page, code: Code) -> None:
        """Code without a command that is known: options of one, or a profile of the load."""
        options = options_in(page.lines, code.first, code.last)
        if options is not None and not _SENDS.search(self._above):
            self._serves(options, page.lines[code.first][0], page.name, options.text)
        elif code.last - code.first < _MOST_PROFILE:
            text = " ".join(line.strip() for _, line in page.lines[code.first : code.last + 1])
            self.observed.profiles.append((text, self._spot(page.name, page.lines[code.first][0])))

    def _code(self, page: Page, code: Code, blocks: list[Block], is_log: bool) -> None:
        found = list(islice(commands_in(page.lines, code.first, code.last), _MOST_COMMANDS))
        if not found and not blocks and not is_log and _ANNOUNCES.search(self._above):
            found = [each for each in [unknown_command(page.lines, code.first, code.last)] if each]
        if not found and not blocks and not is_log:
            self._no_command(page, code)
        taken: set[int] = set()
        for block in blocks:
            taken.update(range(block.first_line - 1, block.last_line))
        found = [each for each in found if each.index not in taken]
        for each in found:
            taken.update(range(each.index, each.last + 1))
        events: list[tuple[int, Found | Block]] = [(each.index, each) for each in found]
        events += [(block.first_line - 1, block) for block in blocks]
        for index, event in sorted(events, key=lambda each: each[0]):
            if isinstance(event, Block):
                self._result(page, event, code, blocks, is_log=is_log, taken=taken)
            else:
                self._command(page, event, page.lines[index][0])
        served = [each.last for each in found if not each.is_client]
        self._failures(page, range(max([code.first - 1, *served]) + 1, code.last + 1), taken)
        self._above, self._before = "", []

    def _failures(self, page: Page, indices: range, taken: set[int]) -> None:
        """Failures that the lines of a code say which are no result and no command."""
        fragment: str | None = None
        rows = [(index, page.lines[index][1].strip()) for index in indices if index not in taken]
        rows = [(index, text) for index, text in rows if text]
        if len(rows) > 30:
            rows = [each for each in rows if FAILED.search(each[1])][-1:]
        for index, text in rows:
            bare = text.lstrip("#/ ").strip()
            if _FRAGMENT.match(bare):
                fragment = bare
            elif FAILED.search(bare):
                self._failed(bare, page.lines[index][0], page.name, fragment)
                fragment = None

    def _failed(self, message: str, line: int, file: str, fragment: str | None) -> None:
        serving = self._serving[0] if self._serving else None
        failure = Failure(message[:500], self._spot(file, line), serving, fragment)
        if serving is not None and (serving, fragment) not in self._failures_met:
            self._failures_met.add((serving, fragment))
            self.observed.failures.append(failure)

    def _result(
        self,
        page: Page,
        block: Block,
        code: Code | None,
        blocks: list[Block],
        *,
        is_log: bool,
        taken: set[int] | None = None,
    ) -> None:
        comments: list[str] = []
        index = block.first_line - 2
        while (
            code and index >= code.first and len(comments) < _MOST_COMMENTS and taken is not None and index not in taken
        ):
            text = page.lines[index][1].strip()
            if text and (len(text) > 200 or (is_log and not text.startswith("#"))):
                break
            if text:
                comments.append(text.lstrip("#/ ").strip())
            index -= 1
        spot = self._spot(page.name, page.lines[block.first_line - 1][0])
        first, last = (code.first, code.last) if code else (block.first_line - 1, block.last_line - 1)
        log = own_log(block, blocks, page.lines, first, last)
        if log is None:
            lines = dedented([text for _, text in page.lines[block.first_line - 1 : block.last_line]])
            why = "no text of its own reads as this result alone"
            self.observed.unplaced.append(Unplaced(spot, "a result among others", why, lines))
            return
        self.observed.results.append(
            Result(
                block,
                spot,
                log,
                tuple(each for each in comments if each),
                self._serving[0] if self._serving else None,
                self._client[0] if self._client else None,
            )
        )
        self._label_is_used = True


def _index(part: Heading | Line | Code | Table) -> int:
    if isinstance(part, Code):
        return part.first
    return part.rows[0][0] if isinstance(part, Table) else part.index


def _unread(page: Page, error: ReadError) -> Unplaced:
    """A result that cannot be read, with the lines of the code around the fault."""
    text = str(error)
    match = re.search(r":(\d+): ", text)
    index = min(int(match[1]) - 1, len(page.lines) - 1) if match else 0
    code = next((part for part in page.parts if isinstance(part, Code) and part.first <= index <= part.last), None)
    lines = [line for _, line in page.lines[code.first : code.last + 1][:_MOST_KEPT]] if code and match else []
    kept = dedented(lines) if lines else None
    return Unplaced(Spot(page.name, page.lines[index][0]), "a result that cannot be read", text, kept)
