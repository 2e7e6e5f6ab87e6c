"""The index page over all studies in a results folder: what each found, with a link to its report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from servelab.core.errors import ServelabError
from servelab.core.figure_text import MARKS_KEY, mark
from servelab.measure.run_files import RunStatus, read_import
from servelab.report.page import Cell, Page, Section, Table
from servelab.search.recommendation_text import answer_text
from servelab.search.recommended import Recommended
from servelab.study.project import StudySummary

KINDS = {"studies": "live", "recorded": "recorded logs"}
"""Folder below the results → where its studies' figures come from."""
WITHOUT_ANSWER = NOT_BEGUN, NOT_FINISHED, BROKEN = "not begun", "not finished", "cannot be read"


def index_page(results: Path, expected: Sequence[str] = ()) -> Page:
    """The page; its links are relative to `results`.

    It lists every study with a folder there, and the `expected` ones (`studies/<study>`, `recorded/<study>`). The row
    of a study without an answer says so, and the row of an unreadable file names it.
    """
    there = {f"{kind}/{folder.name}" for kind in KINDS for folder in (results / kind).glob("*") if _has_begun(folder)}
    searches = sorted(there | set(expected), key=lambda search: (list(KINDS).index(search.split("/")[0]), search))
    rows = [_row(results, search) for search in searches]
    finished = sum(row[1].text not in WITHOUT_ANSWER for row in rows)
    lead = f"{finished} {'study' if finished == 1 else 'studies'} with an answer"
    return Page(
        title="Studies",
        lead=f"{lead}, {len(rows) - finished} without." if finished < len(rows) else f"{lead}.",
        sections=[Section("Studies", Table(["Study", "Answer", "Measured"], rows))] if rows else [],
        remark=f"{MARKS_KEY}." if any(row[1].mark for row in rows) else "",
    )


def _has_begun(folder: Path) -> bool:
    """Whether the study has results; a preflight alone does not count."""
    return any((folder / name).exists() for name in ("stages", "study.json", "recommended.json"))


def _row(results: Path, search: str) -> list[Cell]:
    kind, name = search.split("/")
    folder, found, nothing = results / search, f"{name}, {KINDS[kind]}", Cell("–")
    try:
        if not all((folder / file).exists() for file in ("study.json", "recommended.json")):
            return [Cell(name, note=found), Cell(NOT_FINISHED if _has_begun(folder) else NOT_BEGUN), nothing]
        study, recommended = StudySummary.read(folder / "study.json"), Recommended.read(folder / "recommended.json")
    except ServelabError as error:
        return [Cell(name, note=found), Cell(BROKEN, note=str(error)), nothing]
    report = folder / "report.html"
    link = str(report.relative_to(results)) if report.exists() else ""
    answer = answer_text(recommended, study.objective.on)
    sign = mark(recommended.validity, recommended.baseline_validity)
    serves = f"{recommended.model} on {study.hardware.accelerator}, {recommended.engine} {recommended.engine_version}"
    return [
        Cell(study.title, note=found if link else f"{found}, no report yet", link=link),
        Cell(answer.text, note=serves, is_good=answer.kind == "win", mark=sign, mark_why=MARKS_KEY if sign else ""),
        Cell(_measured(results, recommended.run_id)),
    ]


def _measured(results: Path, run_id: str) -> str:
    """The day on which the winner's run ended, and whether it was imported; a dash for recorded logs."""
    run = results / "runs" / run_id
    try:
        return RunStatus.read(run / "status.json").finished_at[:10] + (", imported" if read_import(run) else "")
    except ServelabError:
        return "–"
