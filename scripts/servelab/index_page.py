"""The index page over all studies of a folder of results: what each found, and where its report is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from servelab.errors import ServelabError
from servelab.figures import MARKS_KEY, change, interval, is_noise, mark, metric_label
from servelab.metrics import METRICS
from servelab.page import Page, Section
from servelab.report.inputs import read
from servelab.report.table import Cell, Table
from servelab.study import Hardware

KINDS = {"studies": "live", "recorded": "recorded logs"}
"""Folder below the results → where its studies' figures come from."""
WITHOUT_ANSWER = NOT_BEGUN, NOT_FINISHED, BROKEN = "not begun", "not finished", "cannot be read"
COLUMNS = ["Study", "Model", "Hardware", "Recommended", "Gain on the baseline", "Measured"]


class Read(BaseModel):
    """What the index reads of other rules' files; everything else in them is left alone."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Model(Read):
    """The model of a study."""

    id: str


class Study(Read):
    """`study.json`."""

    study: str
    title: str
    model: Model
    hardware: Hardware
    workloads: dict[str, str]
    objective: dict[str, Any]


class Gain(Read):
    """The winner's change on one workload."""

    workload: str
    title: str
    extrapolated: bool = False
    change_percent: float | None = None
    change_ci95_low_percent: float | None = None
    change_ci95_high_percent: float | None = None
    failed: str | None = None


class Recommended(Read):
    """`recommended.json`."""

    engine: str
    engine_version: str
    changed: bool
    objective: str
    per: str
    improvements: list[Gain]
    run_id: str
    validity: str | None = None
    baseline_validity: str | None = None


def index_page(results: Path, expected: Sequence[str] = ()) -> Page:
    """The page, to lie in `results` itself.

    It lists every study with a folder there, and those `expected` (`studies/<study>`, `recorded/<study>`). A study
    without an answer is listed as such; a file that cannot be read is named in its row.
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
        remark=f"{doubts}A gain is the winner's change of the study's objective on the workload that decides; ± is "
        "half of its 95 % interval over rounds; bold is a gain beyond noise.",
    )


def _has_begun(folder: Path) -> bool:
    """Whether anything of a study was made; a preflight alone is no beginning."""
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
        study = read(folder / "study.json", Study)
        hardware = f"{study.hardware.accelerator}, {study.hardware.per_node} in a node"
        described = [Cell(study.model.id), Cell(hardware)]
        if not (folder / "recommended.json").exists():
            return [Cell(study.title, note=found), *described, Cell(NOT_FINISHED), nothing, nothing]
        recommended = read(folder / "recommended.json", Recommended)
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


def _gain(study: Study, recommended: Recommended) -> Cell:
    if not recommended.changed:
        return Cell("none", note="no candidate beat the baseline: keep it")
    on = str(study.objective["on"])
    row = next((each for each in recommended.improvements if each.workload == on), None)
    if row is None or row.change_percent is None:
        return Cell("–", note=(row.failed if row else None) or "not comparable")
    low, high = row.change_ci95_low_percent, row.change_ci95_high_percent
    per = metric_label(recommended.objective, recommended.per)
    what = f"{per}{' (extrapolated)' if row.extrapolated else ''} on {row.title}"
    if low is None or high is None:
        text = "no interval"
    else:
        text = f"within noise: {interval(low, high)}" if is_noise(low, high) else interval(low, high)
    sign = mark(recommended.validity, recommended.baseline_validity)
    good = (row.change_percent > 0) == METRICS.get(recommended.objective).higher_is_better
    return Cell(
        change(row.change_percent, low, high),
        note=f"{what}; {text}",
        is_good=good and low is not None and not is_noise(low, high),
        mark=sign,
        mark_why=MARKS_KEY if sign else "",
    )


def _measured(results: Path, run_id: str) -> str:
    """The day on which the winner's run ended; a dash for recorded logs."""
    try:
        return str(json.loads((results / "runs" / run_id / "status.json").read_bytes())["finished_at"])[:10]
    except (OSError, ValueError, LookupError, TypeError):
        return "–"
