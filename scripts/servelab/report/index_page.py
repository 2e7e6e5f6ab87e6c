"""The index page over all studies in a results folder: what each found, with a link to its report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from servelab.core.errors import ServelabError
from servelab.core.yaml_file import MARKS_KEY, is_noise, mark, percent
from servelab.measure.run_files import RunStatus, read_import
from servelab.report.page import Cell, Page, Section, Table
from servelab.search.recommendation_text import answer_text
from servelab.search.recommended import Recommended
from servelab.study.project import StudySummary

KINDS = {"studies": "live", "recorded": "recorded logs"}
"""Folder below the results → where its studies' figures come from."""
WITHOUT_ANSWER = NOT_BEGUN, NOT_FINISHED, BROKEN = "not begun", "not finished", "cannot be read"
COLUMNS = ["Study", "Model", "Hardware", "Recommended", "Gain on the baseline", "Measured"]


def index_page(results: Path, expected: Sequence[str] = ()) -> Page:
    """The page; its links are relative to `results`.

    It lists every study with a folder there, and the `expected` ones (`studies/<study>`, `recorded/<study>`). The row
    of a study without an answer says so, and the row of an unreadable file names it.
    """
    there = {f"{kind}/{folder.name}" for kind in KINDS for folder in (results / kind).glob("*") if _has_begun(folder)}
    searches = sorted(there | set(expected), key=lambda search: (list(KINDS).index(search.split("/")[0]), search))
    rows = {search: _row(results, search) for search in searches}
    finished = [row for row in rows.values() if row[3].text not in WITHOUT_ANSWER]
    sections = [Section("Studies", Table(COLUMNS, list(rows.values())))] if rows else []
    comparisons = sorted((results / "comparisons").glob("*/comparison.html"))
    if comparisons:
        cells = [
            [Cell(file.parent.name.replace("--", " and "), link=str(file.relative_to(results)))] for file in comparisons
        ]
        sections.append(Section("Comparisons", Table(["Studies"], cells)))
    doubts = f"{MARKS_KEY}. " if any(cell.mark for row in rows.values() for cell in row) else ""
    left = len(rows) - len(finished)
    lead = f"{len(finished)} {'study' if len(finished) == 1 else 'studies'} with an answer"
    return Page(
        title="Studies",
        lead=f"{lead}, {left} without." if left else f"{lead}.",
        sections=sections,
        remark=f"{doubts}A gain is the winner's change of the study's objective on the deciding workload with its "
        "95 % interval. That of a live study is what its proof found, over pairs of server starts or visits; bold is "
        "a gain beyond noise.",
    )


def _has_begun(folder: Path) -> bool:
    """Whether the study has results; a preflight alone does not count."""
    return any((folder / name).exists() for name in ("stages", "study.json", "recommended.json"))


def _row(results: Path, search: str) -> list[Cell]:
    kind, name = search.split("/")
    folder = results / search
    found = f"{name}, {KINDS[kind]}"
    nothing = Cell("–")
    try:
        if not (folder / "study.json").exists():
            state = NOT_FINISHED if _has_begun(folder) else NOT_BEGUN
            return [Cell(name, note=found), nothing, nothing, Cell(state), nothing, nothing]
        study = StudySummary.read(folder / "study.json")
        hardware = f"{study.hardware.accelerator}, {study.hardware.per_node} in a node"
        described = [Cell(str(study.model["id"])), Cell(hardware)]
        if not (folder / "recommended.json").exists():
            return [Cell(study.title, note=found), *described, Cell(NOT_FINISHED), nothing, nothing]
        recommended = Recommended.read(folder / "recommended.json")
    except ServelabError as error:
        return [Cell(name, note=found), nothing, nothing, Cell(BROKEN, note=str(error)), nothing, nothing]
    report = folder / "report.html"
    link = str(report.relative_to(results)) if report.exists() else ""
    return [
        Cell(study.title, note=found if link else f"{found}, no report yet", link=link),
        *described,
        Cell(f"{recommended.engine} {recommended.engine_version}"),
        _gain(study, recommended),
        Cell(_measured(results, recommended.run_id)),
    ]


def _gain(study: StudySummary, recommended: Recommended) -> Cell:
    """The gain in percent, with the whole answer below it."""
    kind, text = answer_text(recommended, study.objective.on)
    row = recommended.improvement(study.objective.on)
    if kind != "win" or row is None or row.change_percent is None:
        return Cell({"keep": "none", "unsure": "cannot tell"}.get(kind, "–"), note=text)
    low, high = row.change_ci95_low_percent, row.change_ci95_high_percent
    sign = mark(recommended.validity, recommended.baseline_validity)
    good = low is not None and not is_noise(low, high)
    return Cell(percent(row.change_percent), note=text, is_good=good, mark=sign, mark_why=MARKS_KEY if sign else "")


def _measured(results: Path, run_id: str) -> str:
    """The day on which the winner's run ended, and whether it was imported; a dash for recorded logs."""
    run = results / "runs" / run_id
    try:
        return RunStatus.read(run / "status.json").finished_at[:10] + (", imported" if read_import(run) else "")
    except ServelabError:
        return "–"
