"""Validity: named checks on a measured run, each with its rule, what it found and what to do.

A run that fails one is *suspect* (its figures are shown with a mark) or *invalid* (it never wins). A healthy run passes
every rule. To add a check, write its texts in checks.yaml, register a function in a module of this package, and add
examples to the test of all checks.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from servelab.core.figure_text import runs_text
from servelab.core.identity import canonical_json
from servelab.core.registry import Registry
from servelab.core.run_spec import RunSpec
from servelab.core.yaml_file import read_yaml
from servelab.measure.load import LoadStats
from servelab.measure.run_files import PlaceFacts, fact_text
from servelab.metrics.tables import schemas
from servelab.metrics.tables.io import RecordArray, record_array, succeeded
from servelab.metrics.timeline import under_load
from servelab.results.physical_limit import PhysicalLimit

Level = Literal["ok", "suspect", "invalid", "not applicable"]
_SEVERITY: tuple[Level, ...] = ("invalid", "suspect")


@dataclass(frozen=True)
class Evidence:
    """The input of a run's checks."""

    records: RecordArray
    """`schemas.RUN_REQUESTS` of all rounds."""
    spec: RunSpec
    server_starts: int | None
    """How often the server was started; None if unknown."""
    summary: Mapping[str, Mapping[str, Any]]
    """Metric → its row of `schemas.METRICS`."""
    rounds: Mapping[str, Mapping[int, float]]
    """Metric → round → its value in `schemas.ROUNDS`."""
    client: Sequence[LoadStats] = ()
    """The client's cost of each round, in order; empty if it was not recorded."""
    telemetry: RecordArray = field(default_factory=lambda: record_array(schemas.TELEMETRY.empty_table()))
    """`schemas.TELEMETRY`; empty if none was recorded."""
    limit: PhysicalLimit = field(default_factory=lambda: PhysicalLimit("the model's size is not known"))
    loads_sent: int = 0
    """Loads that a search for capacity tried; the records are then those of the highest that holds. 0 for one load."""

    @cached_property
    def counted(self) -> RecordArray:
        """The records that figures are computed from: without the settle phase."""
        counted: RecordArray = self.records[self.records["phase"] != "settle"]
        return counted

    @cached_property
    def successes(self) -> RecordArray:
        """The counted requests that succeeded."""
        return succeeded(self.counted)

    def mean(self, metric: str) -> float | None:
        """A metric's mean; None if it has none, or if the client's definition differs."""
        row = self.summary.get(metric, {})
        value = None if row.get("definition") else row.get("mean")
        return None if value is None else float(value)

    @cached_property
    def loaded(self) -> RecordArray:
        """Telemetry while the load ran: from the zero of each round to its last end."""
        return under_load(self.records, self.telemetry)

    def samples(self, metric: str) -> RecordArray:
        """Telemetry of one metric while the load ran."""
        samples: RecordArray = self.loaded[self.loaded["metric"] == metric]
        return samples


@dataclass(frozen=True)
class Saw:
    """Result of a check."""

    level: Level
    text: str


ok = partial(Saw, "ok")
"""The rule holds."""
suspect = partial(Saw, "suspect")
"""The figures may be wrong: they are shown with a mark."""
invalid = partial(Saw, "invalid")
"""The figures are wrong, or belong to another load than the study asks for: the run never wins."""
not_applicable = partial(Saw, "not applicable")
"""There was nothing to check."""


@dataclass(frozen=True)
class Check:
    """A named check."""

    name: str
    looks_at: str
    rule: str
    """When it fails, with its thresholds."""
    fails_as: Sequence[Level]
    """`suspect`, `invalid`, or both if the rule distinguishes them."""
    action: str
    look: Callable[[Evidence], Saw]
    means_disturbed: bool = False
    """Whether it fails because of something outside server and load, so that the run can neither win nor be beaten."""


CHECKS: Registry[Check] = Registry("check")
_TEXTS = read_yaml(Path(__file__).with_name("checks.yaml"))


def check(name: str) -> Callable[[Callable[[Evidence], Saw]], Check]:
    """Registers the decorated function as the check that checks.yaml has under this name."""
    return lambda look: CHECKS.register(name, Check(name=name, look=look, **_TEXTS[name]))


def check_run(evidence: Evidence) -> list[dict[str, Any]]:
    """A row of `schemas.CHECKS` for each check, without study, run_id and workload."""
    rows = []
    for entry in CHECKS:
        saw = entry.look(evidence)
        action = entry.action if saw.level in _SEVERITY else None
        rows.append({"check": entry.name, "level": saw.level, "saw": saw.text, "action": action})
    return rows


def verdict(findings: Sequence[Mapping[str, Any]]) -> tuple[Level, str | None]:
    """A run's validity, which is that of its worst check, and what the failed checks found; None if none failed."""
    failed = [finding for level in _SEVERITY for finding in findings if finding["level"] == level]
    return (failed[0]["level"], _note(failed)) if failed else ("ok", None)


def disturbance(findings: Sequence[Mapping[str, Any]]) -> str | None:
    """Disturbance of a run, in words; None if there was none."""
    return _note(disturbing(findings)) or None


def disturbing(findings: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The failed checks with `Check.means_disturbed`."""
    names = {entry.name for entry in CHECKS if entry.means_disturbed}
    return [finding for finding in findings if finding["level"] in _SEVERITY and finding["check"] in names]


def _note(findings: Sequence[Mapping[str, Any]]) -> str:
    return "; ".join(f"{finding['check'].replace('_', ' ')}: {finding['saw']}" for finding in findings)


def render_docs() -> str:
    """The text of docs/reference/checks.md."""
    return _DOCS_HEAD + "".join(
        f"- `{entry.name}` ({' or '.join(entry.fails_as)}{', disturbed' if entry.means_disturbed else ''}): "
        f"{entry.looks_at} Fails if: {entry.rule}\n"
        for entry in CHECKS
    )


_DOCS_HEAD = Path(__file__).with_name("docs_head.txt").read_text(encoding="utf-8")


CHECKS.load(__name__)


Row = Mapping[Any, Any]
"""A row of schemas.STAGE_TABLE."""

_NOT_RECORDED = "not recorded"


def place_columns(places: Sequence[PlaceFacts | None]) -> dict[str, Any]:
    """Columns `run_places` and `places` of a candidate, from the place of each of its runs."""
    facts = {place.digest: place.facts for place in places if place is not None}
    return {
        "run_places": [None if place is None else place.digest for place in places],
        "places": canonical_json(facts) if facts else None,
    }


def unequal_places(rows: Iterable[Row]) -> str | None:
    """How the places of the rows' runs differ: `driver 550.54.15 (2 runs), 570.86.10 (1 run)`; None if they do not.

    A run of an older release, whose place is not recorded, is unequal to one whose place is. Logs have no place.
    """
    place_of: dict[str, str | None] = {}
    facts_of: dict[str, dict[str, str]] = {}
    for row in rows:
        known, places = row.get("places"), row.get("run_places")
        if isinstance(places, Sequence | np.ndarray) and len(places):  # null for logs and for rows of an estimate
            place_of |= dict(zip(row["run_ids"], places, strict=True))
        facts_of |= json.loads(known) if isinstance(known, str) else {}
    counts = Counter(place_of.values())
    if len(counts) < 2:
        return None
    unknown = counts.pop(None, 0)
    texts = [f"place {_NOT_RECORDED} ({runs_text(unknown)})"] if unknown else []
    for name in PlaceFacts.model_fields:
        values: Counter[str] = Counter()
        for place, count in counts.items():
            values[facts_of[str(place)].get(name, "unknown")] += count
        if len(values) > 1:
            first, *others = (f"{value} ({runs_text(count)})" for value, count in values.items())
            texts.append(", ".join([fact_text(name, first), *others]))
    return "; ".join(texts)
