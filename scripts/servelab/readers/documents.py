"""Reads JSON results that hold one figure a key, and what every reader of saved figures shares."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from servelab import readers
from servelab.readers.checks import Identity, Key, Span, contradiction, not_above, times_within
from servelab.readers.pieces import Piece

_EXACT = 1e-7
"""Relative width of a figure saved with all its digits."""
_STATISTICS = {"mean": "mean", "median": "median", "std": "std", "min": "minimum", "max": "maximum"}
_FAMILY = re.compile(r"(?P<statistic>mean|median|std|min|max|p(?P<percentile>\d+(?:\.\d+)?))_(?P<family>.+)")


@dataclass
class Saved:
    """Figures on their way from a saved result into a block."""

    piece: Piece
    figures: dict[Key, readers.Figure] = field(default_factory=dict)
    spans: dict[Key, Span] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def add(self, key: Key, value: Any, name: str, half_width: float = 0.0, line: int | None = None) -> None:
        """A figure under its name in the result; `ReadError` if it is no number or a negative one."""
        line = line or self.piece.first_line
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise self.error(f"`{name}` is not a number: {value!r}", line)
        if value is None or math.isnan(value):
            self.figures[key] = readers.Figure(*key, None, line)
            self.warnings.append(f"`{name}` has no value")
            return
        if value < 0 or math.isinf(value):
            raise self.error(f"`{name}` cannot be {value}", line)
        span = Span.around(value, half_width + _EXACT * value)
        if key in self.spans and not self.spans[key].meets(span):
            raise self.error(f"the result contradicts itself: `{name}` is a second {key[1]} of {key[0]}", line)
        self.figures[key] = readers.Figure(*key, float(value), line, half_width)
        self.spans[key] = span

    def error(self, text: str, line: int | None = None) -> readers.ReadError:
        """An error at a line."""
        return readers.ReadError(f"{self.piece.file}:{line or self.piece.first_line}: {text}")

    def block(
        self,
        *,
        tool: str,
        version: str | None,
        definitions: Mapping[str, str],
        settings: Mapping[str, Any],
        unknown: list[readers.UnknownLine],
        identities: tuple[Identity, ...] = (),
        within_run: tuple[str, ...] = (),
    ) -> readers.Block:
        """The block; `ReadError` if its figures contradict each other."""
        wrong = contradiction(self.spans, identities) or times_within(self.spans, within_run)
        if wrong is None and within_run:
            wrong = not_above(self.spans, "ttft_ms", "e2el_ms")
        if wrong is not None:
            raise self.error(f"the result contradicts itself: {wrong[1]}", self.figures[wrong[0]].line)
        if unknown:
            self.warnings.append(
                f"not read, no such figure is known: {', '.join(each.text.split(': ')[0] for each in unknown)}"
            )
        return readers.Block(
            tool=tool,
            tool_version=version,
            file=self.piece.file,
            first_line=self.piece.first_line,
            last_line=self.piece.last_line,
            figures=tuple(self.figures.values()),
            definitions=readers.definitions_of(definitions, self.spans),
            settings=settings,
            unknown=tuple(unknown),
            warnings=tuple(self.warnings),
        )


def unknown_entry(piece: Piece, key: str, value: Any) -> readers.UnknownLine:
    """An entry of a document that no reader knows, kept whole."""
    return readers.UnknownLine(piece.first_line, f"{key}: {json.dumps(value, ensure_ascii=False)}")


@dataclass(frozen=True)
class DocumentReader:
    """A tool's saved JSON: an object whose keys are figures, settings, and lists with an entry a request."""

    tool: str
    markers: frozenset[str]
    numbers: Mapping[str, str]
    """Key → metric that is one number."""
    families: Mapping[str, str]
    """What follows `mean_`, `p99_`, … in a key → metric in the same unit."""
    required: tuple[str, ...]
    definitions: Mapping[str, str]
    settings: Mapping[str, str]
    """Key → name among the settings; keys with a text, true or false need no entry."""
    figures: Mapping[str, Key] = field(default_factory=dict)
    """Key → metric and statistic, where the key's form tells neither."""
    details: frozenset[str] = frozenset()
    """Keys with an entry a request, and others that are no figures."""
    identities: tuple[Identity, ...] = ()
    within_run: tuple[str, ...] = ()
    releases: Mapping[str, str] = field(default_factory=dict)
    """Key → release that it tells of."""
    form: str = "json"

    def knows(self, name: str) -> bool:
        """Whether its tool writes figures, or a list of a figure a request, under such a key."""
        return name in self.numbers or name in self.figures or name in self.details or self._statistic(name) is not None

    def read(self, piece: Piece) -> list[readers.Block]:
        """The block of a document; `ReadError` where it is broken."""
        saved = Saved(piece)
        settings: dict[str, Any] = {}
        unknown: list[readers.UnknownLine] = []
        for key in self.required:
            if piece.document.get(key) is None:
                raise saved.error(f"`{key}` is missing")
        for key, value in piece.document.items():
            figure = self.figures.get(key) or self._statistic(key)
            if key in self.numbers:
                if value is not None:
                    saved.add((self.numbers[key], readers.VALUE), value, key)
            elif figure is not None:
                saved.add(figure, value, key)
            elif key in self.settings or value is None or isinstance(value, str | bool):
                infinite = isinstance(value, float) and math.isinf(value)
                settings[self.settings.get(key, key)] = "inf" if infinite else value
            elif key not in self.details:
                unknown.append(unknown_entry(piece, key, value))
        told = [self.releases[key] for key in piece.document if key in self.releases]
        block = saved.block(
            tool=self.tool,
            version=max(told, key=lambda release: [int(part) for part in release[2:].split(".")], default=None),
            definitions=self.definitions,
            settings=settings,
            unknown=unknown,
            identities=self.identities,
            within_run=self.within_run,
        )
        return [block]

    def _statistic(self, key: str) -> Key | None:
        match = _FAMILY.fullmatch(key)
        if match is None or match["family"] not in self.families:
            return None
        statistic = _STATISTICS.get(match["statistic"], match["statistic"])
        if match["percentile"] and float(match["percentile"]) > 100:
            return None
        return self.families[match["family"]], "median" if statistic == "p50" else statistic
