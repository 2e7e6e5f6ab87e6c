"""The index page over all studies in a results folder: what each found, with a link to its report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from servelab.core.errors import ServelabError
from servelab.core.yaml_file import MARKS_KEY, figure, interval, is_noise, mark, metric_label, percent
from servelab.measure.run_files import RunStatus, read_import
from servelab.metrics.definitions import METRICS
from servelab.metrics.tables import schemas
from servelab.metrics.tables.io import read_table
from servelab.recorded.audit.rounding import in_digits
from servelab.report.answers_over_time import answers_over_time
from servelab.report.page import Cell, Page, Section, Table, value_or_none
from servelab.search.recommend import keep_text
from servelab.search.recommended import FROM_LOGS, Recommended
from servelab.study.project import StudySummary
from servelab.study.recorded.plan import RecordedPlan, RecordedPlanCandidate
from servelab.study.study import COMPARISON

BOARD_COLUMNS = ["Model", "Hardware", "Engine", "Workload", "Configuration", "Published", "Sound", "Off", "Gain"]
BOARD_TEXT = (
    "The best configuration of each engine on each workload, of every recorded study. Published is the figure that the "
    "page prints, or else its log; sound is the log's, by tokens / duration where the log prints another rate. Both "
    "are of the deployment as run. Gain: the change of the sound objective on the baseline."
)

_FILES = ("study.json", "recommended.json", "metrics.parquet", "claims.parquet", "report.html")
"""Files that a study needs to be on the board."""

Row = dict[Any, Any]


@dataclass(frozen=True)
class _Entry:
    """A configuration on a workload."""

    planned: RecordedPlanCandidate
    stage: str
    row: Row
    """Its row of the stage's table."""
    log: str | None


def board_table(results: Path) -> Table:
    """The board of the recorded studies below `results` that are finished; links are relative to it."""
    rows: list[list[Cell]] = []
    for folder in sorted((results / "recorded").glob("*")):
        if all((folder / name).exists() for name in _FILES):
            with suppress(ServelabError):  # the list of studies names a file that cannot be read
                rows += list(_rows_of(folder, f"recorded/{folder.name}"))
    return Table(BOARD_COLUMNS, rows)


def _rows_of(folder: Path, address: str) -> Iterator[list[Cell]]:
    study = StudySummary.read(folder / "study.json")
    metric = study.objective.metric_and_basis[0]
    higher = bool(METRICS.get(metric).higher_is_better)
    entries = [
        each
        for stage in (*(stage.name for stage in study.stages), COMPARISON)
        if (folder / "stages" / stage / "plan.json").exists()
        for each in _entries(folder / "stages" / stage, stage, study.objective.min_success_rate)
    ]
    best: dict[tuple[str, str], _Entry] = {}
    baseline: dict[str, float] = {}
    for each in entries:
        place, value = (each.row["engine"], each.row["workload"]), float(each.row["objective_value"])
        if each.planned.reference == study.baseline:
            baseline[each.row["workload"]] = value
        held = best.get(place)
        if held is None or (value > held.row["objective_value"] if higher else value < held.row["objective_value"]):
            best[place] = each
    metrics = read_table(folder / "metrics.parquet", schemas.METRICS)
    of_run = metrics[metrics["metric"] == metric].set_index(["run_id", "workload"])["mean"].to_dict()
    claims = read_table(folder / "claims.parquet", schemas.CLAIMS)
    claims = claims[claims["metric"] == metric]
    order = {name: position for position, name in enumerate(study.workloads)}
    for (engine, workload), entry in sorted(best.items(), key=lambda item: (order[item[0][1]], item[0][0])):
        sound = value_or_none(of_run.get((entry.row["run_id"], workload)))
        base = baseline.get(workload)
        if sound is not None:
            yield _cells(study, address, entry, engine, float(sound), base, _published(claims, entry, workload))


def _entries(folder: Path, stage: str, least: float) -> Iterator[_Entry]:
    """Configurations of a stage with figures that may win, by workload; `least` is the success rate they need."""
    plan = RecordedPlan.read(folder / "plan.json")
    for row in read_table(folder / "table.parquet", schemas.STAGE_TABLE).to_dict("records"):
        fits = row["outcome"] == "ok" and row["validity"] != "invalid" and pd.isna(row["constraints_missed"])
        rate = value_or_none(row["success_rate"])
        if fits and value_or_none(row["objective_value"]) is not None and (rate is None or rate >= least):
            planned = plan.candidates[int(row["position"])]
            logs = next((run.spec.logs for run in planned.runs if run.workload == row["workload"]), {})
            yield _Entry(planned, stage, row, next(iter(logs), None))


def _published(claims: pd.DataFrame, entry: _Entry, workload: str) -> Row | None:
    """The claim of the page on a figure, or that of its log."""
    own = claims[(claims["candidate"] == entry.planned.reference) & (claims["workload"] == workload)]
    for rule in ("figure", "token_rate"):
        found: list[Row] = own[own["rule"] == rule].to_dict("records")
        if found:
            return found[0]
    return None


def _cells(
    study: StudySummary,
    address: str,
    entry: _Entry,
    engine: str,
    sound: float,
    base: float | None,
    published: Row | None,
) -> list[Cell]:
    report, row = f"{address}/report.html", entry.row
    stages, audit = f"{report}#stages", f"{report}#audit"
    about = stages if entry.stage == COMPARISON else f"{report}#stage-{entry.stage}"
    has = study.engines.get(engine, {})
    printed = value_or_none(published["published_value"]) if published else None
    text = str(published["published"]) if published else "–"
    change = None if base is None or not base else 100 * (float(row["objective_value"]) / base - 1)
    sign = mark(row["validity"])
    digits = str(published["published"]).split()[0] if published and printed is not None else None
    used, node = int(row["accelerators"]), int(row["accelerators_per_node"])
    return [
        Cell(str(study.model["id"]), link=report),
        Cell(f"{node} × {study.hardware.accelerator}", link=f"{report}#provenance"),
        Cell(f"{has.get('title') or engine} {has.get('version', '')}".strip(), link=about),
        Cell(study.workloads[row["workload"]], link=stages),
        Cell(entry.planned.reference, link=about, note=f"on {used} of {node}" if used != node else ""),
        Cell(text, link=audit if published else "", note=_source(study, published)),
        Cell(
            in_digits(sound, digits) if digits else figure(sound),
            link=f"{address}/logs/{entry.log}" if entry.log else report,
            mark=sign,
            mark_why=str(row["validity_note"] or "") if sign else "",
            value=sound,
        ),
        Cell(percent(100 * (printed / sound - 1)) if printed and sound else "–", link=audit if printed else ""),
        Cell("–" if change is None else "baseline" if not change else percent(change), link=stages),
    ]


def _source(study: StudySummary, published: Row | None) -> str:
    metric = metric_label(study.objective.metric_and_basis[0])
    return metric if published is None or published["rule"] == "figure" else f"{metric}, printed by its log"


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
    of_logs = board_table(results)
    if of_logs.rows:
        sections.append(Section("Board of recorded studies", of_logs, BOARD_TEXT, "facts board"))
    over_time = answers_over_time(results)
    if over_time is not None:
        sections.append(over_time)
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
    if not recommended.changed:
        return Cell("none", note=keep_text(recommended))
    row = recommended.improvement(study.objective.on)
    if row is None or row.change_percent is None:
        return Cell("–", note=(row.failed if row else None) or "not comparable")
    low, high = row.change_ci95_low_percent, row.change_ci95_high_percent
    per = metric_label(recommended.objective, recommended.per)
    what = f"{per}{' (extrapolated)' if row.extrapolated else ''} on {row.title}"
    text = interval(low, high)
    if recommended.evidence == FROM_LOGS:
        text += f"; {FROM_LOGS}"
    sign = mark(recommended.validity, recommended.baseline_validity)
    good = (row.change_percent > 0) == METRICS.get(recommended.objective).higher_is_better
    return Cell(
        percent(row.change_percent),
        note=f"{what}; {text}",
        is_good=good and low is not None and not is_noise(low, high),
        mark=sign,
        mark_why=MARKS_KEY if sign else "",
    )


def _measured(results: Path, run_id: str) -> str:
    """The day on which the winner's run ended, and whether it was imported; a dash for recorded logs."""
    run = results / "runs" / run_id
    try:
        return RunStatus.read(run / "status.json").finished_at[:10] + (", imported" if read_import(run) else "")
    except ServelabError:
        return "–"
