"""Validity: named checks on a measured run, each with its rule, what it saw and what to do.

A run that fails one is *suspect* (its figures are shown with a mark) or *invalid* (it never wins). Rules are set so
that a healthy run passes; each says why its threshold is where it is. A new check is a function registered in a module
beside this one, with made examples in the test of all checks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import pandas as pd

from servelab import schemas
from servelab.clients import LoadStats
from servelab.registry import Registry
from servelab.spec import RunSpec

Level = Literal["ok", "suspect", "invalid", "not applicable"]
_SEVERITY: tuple[Level, ...] = ("invalid", "suspect")


@dataclass(frozen=True)
class Evidence:
    """What the checks of a run look at."""

    records: pd.DataFrame
    """`schemas.RUN_REQUESTS` of all rounds."""
    spec: RunSpec
    status: Mapping[str, Any]
    """`status.json` of the run."""
    summary: Mapping[str, Mapping[str, Any]]
    """Metric → its row of `schemas.METRICS`."""
    rounds: Mapping[str, Mapping[int, float]]
    """Metric → round → its value in `schemas.ROUNDS`."""
    client: Sequence[LoadStats] = ()
    """What each round cost the client, in order of rounds; empty where nobody kept it."""
    telemetry: pd.DataFrame = field(default_factory=lambda: schemas.TELEMETRY.empty_table().to_pandas())
    """`schemas.TELEMETRY`; empty where none was taken."""

    @cached_property
    def counted(self) -> pd.DataFrame:
        """The records that figures are computed from: without the settle phase."""
        return self.records[self.records["phase"] != "settle"]

    @cached_property
    def successes(self) -> pd.DataFrame:
        """The counted requests that succeeded."""
        return self.counted[self.counted["error"].isna()]

    def mean(self, metric: str) -> float | None:
        """A metric's mean; None where it has none, or where the client defines it otherwise."""
        row = self.summary.get(metric, {})
        value = None if row.get("definition") else row.get("mean")
        return None if value is None else float(value)

    def samples(self, metric: str) -> pd.DataFrame:
        """Telemetry of one metric while the load ran: from the round's zero to its last end."""
        found = self.telemetry[self.telemetry["metric"] == metric]
        if found.empty:
            return found
        ends = found["round"].map(self.records.groupby("round")["end_s"].max())
        return found[(found["time_s"] >= 0) & (found["time_s"] <= ends)]


@dataclass(frozen=True)
class Saw:
    """What a check found."""

    level: Level
    text: str


def ok(text: str) -> Saw:
    """The rule holds."""
    return Saw("ok", text)


def suspect(text: str) -> Saw:
    """The figures may be wrong: they are shown with a mark."""
    return Saw("suspect", text)


def invalid(text: str) -> Saw:
    """The figures are wrong, or not of what was asked: the run never wins."""
    return Saw("invalid", text)


def not_applicable(text: str) -> Saw:
    """There was nothing to look at."""
    return Saw("not applicable", text)


@dataclass(frozen=True)
class Check:
    """A named check."""

    name: str
    looks_at: str
    rule: str
    """When it fails, thresholds in it."""
    why: str
    """What the failure does to the figures, and why the threshold is where it is."""
    fails_as: tuple[Level, ...]
    """`suspect`, `invalid`, or both where the rule says which."""
    action: str
    look: Callable[[Evidence], Saw]


CHECKS: Registry[Check] = Registry("check")


def check(
    name: str, *, looks_at: str, rule: str, why: str, fails_as: tuple[Level, ...], action: str
) -> Callable[[Callable[[Evidence], Saw]], Callable[[Evidence], Saw]]:
    """Registers the decorated function as a check."""

    def register(look: Callable[[Evidence], Saw]) -> Callable[[Evidence], Saw]:
        CHECKS.register(name, Check(name, looks_at, rule, why, fails_as, action, look))
        return look

    return register


def check_run(evidence: Evidence) -> list[dict[str, Any]]:
    """A row of `schemas.CHECKS` for each check, without study, run_id and workload."""
    rows = []
    for entry in CHECKS:
        saw = entry.look(evidence)
        action = entry.action if saw.level in _SEVERITY else None
        rows.append({"check": entry.name, "level": saw.level, "saw": saw.text, "action": action})
    return rows


def verdict(findings: Sequence[Mapping[str, Any]]) -> tuple[Level, str | None]:
    """A run's validity by the worst of its checks, and what those that failed saw; None where none did."""
    failed = [finding for level in _SEVERITY for finding in findings if finding["level"] == level]
    if not failed:
        return "ok", None
    note = "; ".join(f"{finding['check'].replace('_', ' ')}: {finding['saw']}" for finding in failed)
    return failed[0]["level"], note


def render_docs() -> str:
    """The text of docs/validity.md."""
    parts = [_DOCS_HEAD]
    for entry in CHECKS:
        facts = {
            "Rule": entry.rule,
            "Level": " or ".join(entry.fails_as),
            "Why": entry.why,
            "What to do": entry.action,
        }
        lines = [f"- {name}: {text}" for name, text in facts.items()]
        parts.append("\n".join([f"## `{entry.name}`\n\n{entry.looks_at}\n", *lines, ""]))
    return "\n".join(parts)


_DOCS_HEAD = """\
# Validity

Written by `scripts/generate_docs.py` from `scripts/servelab/validity/`; edit there.

Every measured run is put through the checks below. A run that fails one is *invalid*, which never wins a stage and is
replaced as an incumbent, or *suspect*, which can win, with the reason told beside it. Figures of a suspect run carry a
† and those of an invalid one a ‡ in every table and chart; the report's section "Checks" says what was seen and what
to do. `checks.parquet` has a row for each check of each run, also for those that passed and those that had nothing to
look at (*not applicable*: no telemetry was taken, or a client defines the figure otherwise). A run that failed has no
checks: its reason says what happened.

A rule says when its check fails. Thresholds are set so that a healthy run passes, on a machine whose cores server and
client share as well.
"""


CHECKS.load(__name__)
