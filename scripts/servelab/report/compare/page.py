"""The comparison of two studies as a page."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from servelab.core.figure_text import MARKS_KEY, estimate, mark, metric_label
from servelab.report.compare.comparison_table import ONLY, SAME, StudyComparison
from servelab.report.compare.sides import StudySide
from servelab.report.page import Cell, Page, Section, Table, change_cell, value_or_none
from servelab.search.verdict import VERDICTS

Record = Mapping[Any, Any]
_COMPARED = ("better", "worse", "no difference", "new failure", "fixed failure", "still fails")
_REMARK = (
    "Runs are compared if they differ only in engine, its version and environment, hardware, machine or date. Each "
    "pair lists everything it differs in, and a change is due to all of it together. ± is half of a figure's 95 % "
    "interval; bold is a gain beyond noise. The runs were measured at different times, so a change also includes any "
    "drift of the machines."
)


def comparison_page(comparison: StudyComparison, folder: Path) -> Page:
    """The page; its links are relative to `folder`, where it will be written."""
    a, b = comparison.a, comparison.b
    table: pd.DataFrame = comparison.table.to_pandas()
    pairs = table[table["is_objective"]]
    same = pairs[pairs["kind"] == "configuration"]
    answers = pairs[pairs["kind"] == "answer"]
    runs = [("a", run) for run in a.runs] + [("b", run) for run in b.runs]
    links = {(side, run.run_id): f"{_link(run.link, folder)}/" for side, run in runs if run.link}
    label = metric_label(*a.study.objective.metric_and_basis)
    rest = table[~table["is_objective"]]
    sections = [
        Section("The two studies", _studies(a, b, folder)),
        Section(
            "What each recommends",
            _pairs(answers, label, links),
            "The two studies' recommended configurations. They may differ in anything that a study chooses.",
        ),
        Section("All configurations", _pairs(same, label, links)),
    ]
    if len(rest):
        sections.append(Section("Every other metric", _other_metrics(rest, links), folded=True))
    doubts = MARKS_KEY + ". " if mark(*table["validity_a"], *table["validity_b"]) else ""
    return Page(f"{a.name} and {b.name}", summary(comparison), sections, doubts + _REMARK)


def summary(comparison: StudyComparison) -> str:
    """One sentence: how many runs were compared, their verdicts, and how many were not comparable."""
    words = [judged.verdict for judged in comparison.configurations]
    counts = {verdict: words.count(verdict) for verdict in (*VERDICTS, SAME)}
    alone = sum(word in ONLY.values() for word in words)
    found = [f"{count} {verdict}" for verdict, count in counts.items() if count and verdict != "not comparable"]
    found += [f"{counts['not comparable']} not comparable"] if counts["not comparable"] else []
    found += [f"{alone} without counterpart"] if alone else []
    names = f"a is {comparison.a.name}, b is {comparison.b.name}"
    many = f"{len(words)} configuration{'' if len(words) == 1 else 's'} and workloads"
    return f"{many}: {', '.join(found) or 'nothing to compare'} ({names})."


Links = Mapping[tuple[str, str], str]
"""Side and run → address of the run's folder, relative to the page."""


def _link(path: Path, folder: Path) -> str:
    return os.path.relpath(path, folder) if path.exists() else ""


def _studies(a: StudySide, b: StudySide, folder: Path) -> Table:
    reports = [_link(side.folder / "report.html", folder) for side in (a, b)]
    titles = [Cell(side.study.title, note=side.name, link=to) for side, to in zip((a, b), reports, strict=True)]
    facts = [dict(_facts(side)) for side in (a, b)]
    return Table(
        ["Fact", "a", "b"],
        [[Cell("Study"), *titles], *([Cell(name), *(Cell(each[name]) for each in facts)] for name in facts[0])],
    )


def _facts(side: StudySide) -> Iterator[tuple[str, str]]:
    """Names and texts of a study's facts."""
    study = side.study
    yield "Model", str(study.model["id"])
    yield "Hardware", f"{study.hardware.accelerator}, {study.hardware.per_node} in a node"
    yield "Engines", ", ".join(f"{name} {engine['version']}" for name, engine in study.engines.items())
    metric, basis = study.objective.metric_and_basis
    yield "Objective", f"{metric_label(metric, basis)} on {study.workloads[study.objective.on]}"
    days = sorted(run.measured_at[:10] for run in side.runs if run.measured_at)
    yield "Measured", "–" if not days else days[0] if days[0] == days[-1] else f"{days[0]} to {days[-1]}"
    yield "Recommended", side.command


def _pairs(pairs: pd.DataFrame, label: str, links: Links) -> Table:
    rows = []
    for row in pairs.to_dict("records"):
        # remarks that the figures lack: failures, failed checks, why there is no change
        is_noted = value_or_none(row["change_percent"]) is None or "suspect" in str(row["why"])
        good = row["verdict"] == "better" and value_or_none(row["change_ci95_low_percent"]) is not None
        rows.append(
            [
                Cell(_names(row), note=str(row["workload"])),
                _side(row, "a", links),
                _side(row, "b", links),
                change_cell(row, None, bool(row["higher_is_better"])),
                Cell(str(row["verdict"]), note=str(row["why"]) if is_noted else "", is_good=good),
                _differs(row),
            ]
        )
    return Table(["Configuration", f"a ({label})", f"b ({label})", "Change", "Verdict", "They differ in"], rows)


def _other_metrics(table: pd.DataFrame, links: Links) -> Table:
    rows = [
        [
            Cell(metric_label(row["metric"], row["basis"]), note=f"{_names(row)}, {row['workload']}"),
            _side(row, "a", links),
            _side(row, "b", links),
            change_cell(row, None, bool(row["higher_is_better"])),
        ]
        for row in table.to_dict("records")
    ]
    return Table(["Metric", "a", "b", "Change"], rows)


def _names(row: Record) -> str:
    one, other = value_or_none(row["candidate_a"]), value_or_none(row["candidate_b"])
    if one is None or other is None or one == other:
        return str(one or other)
    return f"{one} / {other}"


def _side(row: Record, side: str, links: Links) -> Cell:
    run_id = value_or_none(row[f"run_id_{side}"])
    if run_id is None:
        return Cell("–")
    version = f"{row[f'engine_{side}']} {row[f'engine_version_{side}']}"
    link = links.get((side, run_id), "")
    if row[f"outcome_{side}"] != "ok":
        return Cell(str(row[f"outcome_{side}"]), note=version, link=link)
    value = estimate(row[f"value_{side}"], row[f"ci95_low_{side}"], row[f"ci95_high_{side}"])
    sign = mark(value_or_none(row[f"validity_{side}"]))
    return Cell(value, note=version, link=link, mark=sign, mark_why=MARKS_KEY if sign else "")


def _differs(row: Record) -> Cell:
    """Differences of a compared pair; the reason has those of other pairs."""
    is_compared = row["verdict"] in _COMPARED
    return Cell((value_or_none(row["differs"]) or "nothing but when they ran") if is_compared else "–")
