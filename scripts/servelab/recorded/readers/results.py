"""Readers: tables of the names that a tool writes, by which a piece becomes blocks of figures."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, BeforeValidator

from servelab.recorded.readers.figures import (
    ABSENT,
    NUMBER,
    VALUE,
    FigureForm,
    Figures,
    Key,
    PrintedFigure,
    contradiction,
    statistic_of,
)
from servelab.recorded.readers.formulas import DefinedBy, Formula, formulas_of, narrowest, what_they_are
from servelab.recorded.readers.pieces import SECTION, Entry, Line, Piece

_SECTION_OR_ELISION = re.compile(rf"{SECTION.pattern}|[\[(<]?\s*(?:\.{{3,}}|…)\s*[\])>]?")
_UNIT = re.compile(r"(.+) \(([\w/ ]*)\)")
_NO_LIMIT = re.compile(r"-1(?:\.0+)?")
_FAMILY = re.compile(r"(Std Dev|[^ _]+)[ _](\S.*)")
_NO_JSON = re.compile(r"NaN|Infinity|^-?(inf|nan)$")
_MOST_SETTING, _MOST_BRACKETS = 4096, 64


@dataclass(frozen=True)
class Block:
    """The figures of one run of a load client."""

    tool: str
    tool_version: str | None
    """The release, or the range that its lines imply, as in `>=0.11.1,<0.13.0`; None if unknown."""
    file: str
    first_line: int
    last_line: int
    figures: tuple[PrintedFigure, ...]
    definitions: Mapping[str, str] = field(default_factory=dict)
    """Metric → how the tool's definition differs from docs/reference/metrics.md."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The load that the tool reports: `max_concurrency`, `request_rate_per_s`, `backend`, …"""
    unknown: tuple[Line, ...] = ()
    """Lines, keys and rows that the reader does not know."""
    warnings: tuple[str, ...] = ()
    formulas: Mapping[str, Formula] = field(default_factory=dict)
    """Metric → the formula behind the figure."""

    def value(self, metric: str, statistic: str = VALUE) -> float | None:
        """A figure; None if the block lacks it."""
        return next((f.value for f in self.figures if (f.metric, f.statistic) == (metric, statistic)), None)

    def metrics(self) -> dict[str, dict[str, float | None]]:
        """Metric → statistic → value."""
        nested: dict[str, dict[str, float | None]] = {}
        for figure in self.figures:
            nested.setdefault(figure.metric, {})[figure.statistic] = figure.value
        return nested


class ToolRun(NamedTuple):
    """One run of a piece."""

    entries: Iterable[Entry]
    settings: Mapping[str, Any] = {}
    version: str | None = None
    line: int | None = None
    """Its line, if the run is one line of the piece."""
    warnings: tuple[str, ...] = ()


Definition = Annotated[
    DefinedBy, BeforeValidator(lambda said: DefinedBy(*([said] if isinstance(said, str) else said[::-1])))
]
Forms = dict[str, Annotated[FigureForm, BeforeValidator(FigureForm.parsed)]]


class Reader(BaseModel, frozen=True, extra="allow"):
    """Reads the pieces of one form of one tool by a table of the names that the tool writes."""

    tool: str
    form: str
    """Of its pieces: `console`, `json`, `csv`, `grid` (tables of a log), `frame` or `lines`."""
    markers: frozenset[str]
    """Names (labels of lines, keys, metrics of rows) that every piece of the tool has, and few others."""
    following: tuple[frozenset[str], ...] = ()
    """Names in the tables that may follow the first of a result."""
    below: bool = False
    """Whether lines `name: number` below a table belong to it."""
    figures: Forms = {}
    """Name → figure; `*` is any number."""
    families: Forms = {}
    """The rest of a name behind `Mean`, `p99_`, …, or a row with a column for each statistic → figure."""
    settings: dict[str, str] = {}
    """Name → name among the settings."""
    ignored: frozenset[str] = frozenset()
    """Headings, and keys with one entry per request."""
    unnamed: dict[str, str] = {}
    """Name of a figure whose formula cannot be known → why."""
    required: tuple[str, ...] = ()
    """Metrics that every result has, in order."""
    percentiles: frozenset[str] | None = None
    """Percentiles that a console block has; None if the user chooses."""
    partial: frozenset[str] = frozenset()
    """Families of a console block without mean or median."""
    rules: tuple[str, ...] = ()
    within_run: tuple[str, ...] = ()
    """Latencies that lie within the duration."""
    definitions: dict[str, Definition] = {}
    version: str | None = None
    releases: dict[str, str] = {}
    """Name of no figure → releases that write it."""
    units: bool = False
    """Whether a unit in brackets follows its names."""
    fold: bool = False
    """Whether releases write its names in other cases; the table has them in lower case."""
    may_be_abbreviated: bool = False
    """Whether pages shorten its blocks: then what is missing of what it always prints is a warning."""
    shape: str = "rows"
    """The function of `shapes` that divides a piece into runs; what else that needs to know is in `facts`."""

    @property
    def facts(self) -> dict[str, Any]:
        """Other keys of its table."""
        return self.model_extra or {}

    def find(self, name: str, statistic: str | None = None) -> tuple[FigureForm, str] | None:
        """The figure of a name and its statistic; None if its tool writes no figure under it."""
        if statistic is not None:
            form = self._form(self.families, name)
            return (form, statistic) if form else None
        if form := self._form(self.figures, name):
            return form, form.statistic
        match = _FAMILY.fullmatch(name)
        if match is None or match[2] not in self.families or (found := statistic_of(match[1])) is None:
            return None
        is_other = self.percentiles is not None and found[0] == "p" and found not in self.percentiles
        return None if is_other else (self.families[match[2]], found)

    def _form(self, forms: Mapping[str, FigureForm], name: str) -> FigureForm | None:
        """The form of a name."""
        if self.units:
            match = _UNIT.fullmatch(name)
            base, unit = match.groups() if match else (name, "")
            form = forms.get(base.casefold() if self.fold else base)
            return form.in_unit(unit) if form else None
        if name in forms or not name[-1:].isdigit():
            return forms.get(name)
        form = forms.get(re.sub(r"\d+", "*", name))
        return FigureForm(form.metric.replace("*", name.split()[-1]), form.decimals) if form else None

    def knows(self, name: str) -> bool:
        """Whether its tool writes such a name."""
        return name in self.ignored or (name in self.settings and self.form != "json") or self.find(name) is not None

    def block(self, piece: Piece, run: ToolRun) -> Block:
        """The block of a run; `ReadError` if it is broken."""
        found = Figures(piece)
        settings = dict(run.settings)
        seen, unknown = self._add_entries(run, found, settings)
        missing = list(self._missing(found.figures))
        if missing and not (self.may_be_abbreviated and self.required[0] not in missing):
            why = f"the line of {missing[0]} is missing, which {self.tool} always writes: cut off, or another kind"
            raise piece.error(why)
        wrong = contradiction(found.ranges, self.rules, self.within_run)
        if wrong is not None:
            raise piece.error(f"the result contradicts itself: {wrong[1]}", found.figures[wrong[0]].line)
        figures, notes = what_they_are(found.figures, found.ranges, settings)
        shown = {metric for metric, _ in figures.keys() - found.figures.keys()}
        seen += [self.definitions[metric].releases for metric in sorted(shown & self.definitions.keys())]
        version = run.version or narrowest([self.version, *seen])
        warnings = [*run.warnings, *found.warnings, *notes]
        warnings += [f"line {line}: not read, unknown: {text[:200]}" for line, text in unknown]
        warnings += [f"abbreviated: without {', '.join(missing)}"] if missing else []
        present = {figure.metric for figure in figures.values() if figure.value is not None}
        return Block(
            tool=self.tool,
            tool_version=version,
            file=piece.file,
            first_line=run.line or piece.first_line,
            last_line=run.line or piece.last_line,
            figures=tuple(figures.values()),
            definitions={metric: each.text for metric, each in self.definitions.items() if metric in present},
            settings={name: _plain(value) for name, value in settings.items()},
            unknown=tuple(unknown),
            warnings=(*warnings, *_odd(figures.values())),
            formulas=formulas_of(self.tool, version, sorted(present), self.definitions),
        )

    def _add_entries(
        self, run: ToolRun, found: Figures, settings: dict[str, Any]
    ) -> tuple[list[str | None], list[Line]]:
        """Adds each figure and setting; returns the releases that its names imply, and the lines not known."""
        lines: dict[tuple[str, str | None], int] = {}
        unknown: list[Line] = []
        releases: list[str | None] = []
        no_figure = _SECTION_OR_ELISION if self.may_be_abbreviated else SECTION
        for name, value, line, statistic, raw in run.entries:
            figure = self.find(name, statistic)
            if figure or name in self.settings or name in self.ignored:
                if (name, statistic) in lines:
                    text = f"`{name}` occurs twice, first in line {lines[name, statistic]}"
                    raise found.piece.error(text, line)
                lines[name, statistic] = line
                releases.append(figure[0].releases if figure else self.releases.get(name))
            if name in self.unnamed:
                unknown.append((line, raw or name))
                found.warnings.append(f"line {line}: `{name}` is not read: {self.unnamed[name]}")
            elif figure:
                found.add(name, value, line, *figure)
            elif name in self.settings:
                settings[self.settings[name]] = _setting(found.piece, name, value, line)
            elif name not in self.ignored and not no_figure.fullmatch(raw):
                unknown.append((line, raw))
        return releases, unknown

    def _missing(self, found: Mapping[Key, PrintedFigure]) -> Iterator[str]:
        metrics = {metric for metric, _ in found}
        yield from (metric for metric in self.required if metric not in metrics)
        if self.form == "console":
            for name, form in self.families.items():
                if form.metric in metrics and name not in self.partial:
                    pair = ("mean", "median")
                    yield from (f"{each} of {form.metric}" for each in pair if (form.metric, each) not in found)


def _setting(piece: Piece, name: str, value: Any, line: int) -> Any:
    if value == "":
        raise piece.error(f"`{name}` has no value; the line is cut off", line)
    if not isinstance(value, str):
        return value
    if value in ABSENT or _NO_LIMIT.fullmatch(value):
        return None
    number = float(value.replace(",", "")) if NUMBER.fullmatch(value) and value[-1] != "%" else math.inf
    return number if math.isfinite(number) else value


def _plain(value: Any) -> Any:
    """A setting as JSON can hold it, or the start of its text: a hostile one is no number, large, or deeply nested."""
    text = str(value) if isinstance(value, str | float) else json.dumps(value, ensure_ascii=False)
    is_small = len(text) <= _MOST_SETTING and sum(map(text.count, "[{")) <= _MOST_BRACKETS
    return value if is_small and not _NO_JSON.search(text) else text[:_MOST_SETTING]


def _odd(figures: Iterable[PrintedFigure]) -> Iterator[str]:
    """Warnings about figures that tools print but no server can reach."""
    for metric, statistic, value, *_ in figures:
        if statistic in ("mean", "median") and metric in ("ttft_ms", "e2el_ms") and value == 0:
            yield f"{statistic} of {metric} is 0: the tool did not see when the tokens arrived"
