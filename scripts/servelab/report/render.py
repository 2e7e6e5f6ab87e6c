"""Puts a study's report together and fills the two templates."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
from markupsafe import Markup

from servelab.chart_files import add_decisions
from servelab.charts import CHARTS, Chart
from servelab.errors import ServelabError
from servelab.figures import MARKS_KEY
from servelab.report.audit import audit_section
from servelab.report.beside import beside_table
from servelab.report.checks import Marks, checks_summary, checks_table
from servelab.report.comparison import accelerators_text, headline, objective_table, other_metrics_table
from servelab.report.forms import Deployment, forms_in_order
from servelab.report.front import front_table
from servelab.report.guards import guard_section
from servelab.report.inputs import Decision, Recommended, Study
from servelab.report.origin import Origin
from servelab.report.search_tree import search_tree
from servelab.report.stages import StageSection, stage_sections
from servelab.report.table import Cell, Measured, Table
from servelab.report.versions import versions_section
from servelab.study import COMPARISON

CONTROL = re.compile(r"\x1b\[[0-9;]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f]")
"""Terminal colours and other control characters, which log lines may hold."""

ALWAYS_DRAWN = ("improvements", "comparison", "search", "stage")
"""What a chart reads that every study has."""


@dataclass(frozen=True)
class Figure:
    """A chart's files, relative to the report, and its caption."""

    stem: str
    caption: str


@dataclass(frozen=True)
class CommandForm:
    """The recommended command in one form, to copy."""

    name: str
    title: str
    language: str
    text: str


def report_content(
    study: Study,
    recommended: Recommended,
    table: pd.DataFrame,
    decisions: Sequence[Decision],
    improvements: pd.DataFrame,
    metrics: pd.DataFrame,
    checks: pd.DataFrame,
    origin: Origin,
    *,
    search: pd.DataFrame | None = None,
    claims: pd.DataFrame | None = None,
    beside: pd.DataFrame | None = None,
    history: pd.DataFrame | None = None,
    answers: pd.DataFrame | None = None,
    drawn: Collection[str] = (),
) -> dict[str, Any]:
    """What the templates show.

    `table` has the rows of all stage tables, `search` those of schemas.SEARCH, `claims` those of schemas.CLAIMS,
    `beside` those of schemas.IMPROVEMENTS of the other study of this name, live or recorded; `history` and `answers`
    those of schemas.HISTORY and ANSWERS. `drawn` are the stems of the charts that there are, of those that not every
    study has.
    """
    measured = Measured(metrics)
    marks = Marks(table)
    stages = [_marked(stage, marks) for stage in stage_sections(study, table, decisions, measured, origin)]
    ran = table.dropna(subset=["run_id"])
    workload_of = {row["run_id"]: row["workload"] for row in ran.to_dict("records")}
    searched = add_decisions(table[table["stage"] != COMPARISON].reset_index(drop=True), decisions)
    return {
        "study": study,
        "recommended": recommended,
        "forms": _forms(study, recommended, origin),
        "guards": guard_section(recommended),
        "headline": headline(study, recommended, improvements),
        "headline_mark": marks.of(recommended.run_id, recommended.baseline_run_id),
        "marks_key": MARKS_KEY if marks else "",
        "accelerators": accelerators_text(study, table),
        "objective_table": marks.on(objective_table(study, recommended, improvements, measured, table)),
        "other_metrics": marks.on(other_metrics_table(study, improvements, measured)),
        "front": marks.on(front_table(searched, measured)),
        "figures": {
            section: [Figure(chart.stem(), chart.caption) for chart in CHARTS if _is_shown(chart, section, drawn)]
            for section in ("answer", "search", "latency", "time", "versions")
        },
        "stages": stages,
        "stage_figures": {
            stage.name: [Figure(chart.stem(stage.name), chart.caption) for chart in CHARTS if chart.section == "stage"]
            for stage in stages
            if stage.applies
        },
        "not_tried": _not_tried(stages),
        "search_tree": None if search is None else search_tree(search, origin.kind == "recorded"),
        "versions": None if history is None or answers is None else versions_section(study, history, answers),
        "beside": None if beside is None else beside_table(study, origin.kind, improvements, beside),
        "audit": None if claims is None else audit_section(claims),
        "origin": origin,
        "provenance": _named("provenance", origin.provenance(study, workload_of)),
        "checks_summary": checks_summary(checks),
        "checks": checks_table(study, checks, table),
        "commit": origin.commit(recommended.run_id),
    }


def render_markdown(content: dict[str, Any]) -> str:
    """`report.md`, GitHub-flavoured; charts are linked as `charts/<chart>.svg`."""
    environment = _environment()
    environment.filters["cell"] = _markdown_text
    text = environment.get_template("report.md.j2").render(content)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def render_html(content: dict[str, Any], charts: Path) -> str:
    """`report.html`: one file with style, script and charts in it; `ServelabError` names a chart that is missing."""
    environment = _environment()
    environment.globals["svg"] = lambda figure: _inline_svg(charts / f"{figure.stem}.svg", figure.caption)
    for name, file in (("style", "report.css"), ("script", "report.js")):
        environment.globals[name] = Markup(_template_text(environment, file))  # noqa: S704 (our own file)
    return environment.get_template("report.html.j2").render(content)


def _forms(study: Study, recommended: Recommended, origin: Origin) -> list[CommandForm]:
    deployment = Deployment(
        study=study.study,
        command=recommended.command,
        engine=recommended.engine,
        engine_version=recommended.engine_version,
        device=study.hardware.device,
        accelerators=recommended.configuration.accelerators,
        image=origin.image(recommended.run_id),
    )
    return [CommandForm(form.name, form.title, form.language, form.build(deployment)) for form in forms_in_order()]


def _is_shown(chart: Chart, section: str, drawn: Collection[str]) -> bool:
    return chart.section == section and (chart.reads in ALWAYS_DRAWN or chart.stem() in drawn)


def _marked(stage: StageSection, marks: Marks) -> StageSection:
    """The section with a mark on each figure of a run that is not valid."""
    details = [replace(each, metrics=each.metrics and marks.on(each.metrics)) for each in stage.details]
    return replace(stage, table=stage.table and marks.on(stage.table), details=details)


def _named(prefix: str, tables: dict[str, Table]) -> dict[str, Table]:
    """The tables with names for their files, from their headings."""
    return {
        heading: replace(table, name=f"{prefix}-{heading.lower().replace(' ', '-')}")
        for heading, table in tables.items()
    }


def _not_tried(stages: Sequence[StageSection]) -> Table:
    rows = [[Cell(stage.title), Cell(candidate), Cell(why)] for stage in stages for candidate, why in stage.not_tried]
    return Table(["Stage", "Candidate", "Why"], rows, name="not-tried")


def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.PackageLoader("servelab.report"),
        autoescape=jinja2.select_autoescape(enabled_extensions=("html.j2",)),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: value if isinstance(value, Markup) else CONTROL.sub("", str(value)),
    )


def _template_text(environment: jinja2.Environment, name: str) -> str:
    assert environment.loader is not None
    return environment.loader.get_source(environment, name)[0]


def _markdown_text(text: str) -> str:
    """Text that Markdown shows as it is, also in a table's cell."""
    return re.sub(r"([\\`*_\[\]<>|#~&])", r"\\\1", " ".join(text.split()))


def _inline_svg(path: Path, caption: str) -> Markup:
    """An SVG without its fixed size, so that it shrinks with the page; its ids get the chart's name as prefix."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ServelabError(f"{path}: {error.strerror}; draw it with scripts/plot_charts.py") from None
    opening = re.search(r'<svg[^>]* width="([\d.]+)" height="[\d.]+"[^>]*>', text)
    if opening is None:
        raise ServelabError(f"{path}: not an SVG with a size; draw it with scripts/plot_charts.py")
    start = re.sub(r' (width|height)="[\d.]+"', "", opening.group())
    looks = Markup('<svg role="img" aria-label="{}" style="max-width:{}px"').format(caption, opening.group(1))
    body = re.sub(r'(\bid="|url\(#)', rf"\g<1>{path.stem}-", text[opening.end() :])
    return Markup(start.replace("<svg", looks, 1) + body)  # noqa: S704 (drawn by vl-convert, which escapes its texts)
