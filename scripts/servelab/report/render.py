"""Puts a study's report together and fills the two templates."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
from markupsafe import Markup

from servelab.charts import CHARTS
from servelab.errors import ServelabError
from servelab.figures import MARKS_KEY
from servelab.report.audit import audit_section
from servelab.report.beside import beside_table
from servelab.report.checks import Marks, checks_summary, checks_table
from servelab.report.comparison import accelerators_text, headline, objective_table, other_metrics_table
from servelab.report.inputs import Decision, Recommended, Study
from servelab.report.origin import Origin
from servelab.report.stages import stage_sections
from servelab.report.table import Measured
from servelab.report.versions import versions_section

CONTROL = re.compile(r"\x1b\[[0-9;]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f]")
"""Terminal colours and other control characters, which log lines may hold."""


@dataclass(frozen=True)
class Figure:
    """A chart's files, relative to the report, and its caption."""

    stem: str
    caption: str


def report_content(
    study: Study,
    recommended: Recommended,
    table: pd.DataFrame,
    decisions: Sequence[Decision],
    improvements: pd.DataFrame,
    metrics: pd.DataFrame,
    checks: pd.DataFrame,
    origin: Origin,
    claims: pd.DataFrame | None = None,
    beside: pd.DataFrame | None = None,
    history: pd.DataFrame | None = None,
    answers: pd.DataFrame | None = None,
) -> dict[str, Any]:
    """What the templates show.

    `table` has the rows of all stage tables, `claims` those of schemas.CLAIMS, `beside` those of schemas.IMPROVEMENTS
    of the other study of this name, live or recorded; `history` and `answers` those of schemas.HISTORY and ANSWERS.
    """
    measured = Measured(metrics)
    marks = Marks(table)
    stages = [
        dataclasses.replace(stage, table=stage.table and marks.on(stage.table))
        for stage in stage_sections(study, table, decisions, measured)
    ]
    ran = table.dropna(subset=["run_id"])
    workload_of = {row["run_id"]: row["workload"] for row in ran.to_dict("records")}
    return {
        "study": study,
        "recommended": recommended,
        "headline": headline(study, recommended, improvements),
        "headline_mark": marks.of(recommended.run_id, recommended.baseline_run_id),
        "marks_key": MARKS_KEY if marks else "",
        "accelerators": accelerators_text(study, table),
        "objective_table": marks.on(objective_table(study, recommended, improvements, measured, table)),
        "other_metrics": marks.on(other_metrics_table(study, improvements, measured)),
        "figures": [Figure(chart.stem(), chart.caption) for chart in CHARTS if chart.reads not in ("stage", "history")],
        "stages": stages,
        "stage_figures": {
            stage.name: [Figure(chart.stem(stage.name), chart.caption) for chart in CHARTS if chart.reads == "stage"]
            for stage in stages
            if stage.applies
        },
        "versions": None if history is None or answers is None else versions_section(study, history, answers),
        "version_figures": [
            Figure(chart.stem(), chart.caption)
            for chart in CHARTS
            if chart.reads == "history" and history is not None and len(history)
        ],
        "beside": None if beside is None else beside_table(study, origin.kind, improvements, beside),
        "audit": None if claims is None else audit_section(claims),
        "origin": origin,
        "provenance": origin.provenance(study, workload_of),
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
    """`report.html`: one file with its style and charts in it; `ServelabError` names a chart that is missing."""
    environment = _environment()
    environment.globals["svg"] = lambda stem: _inline_svg(charts / f"{stem}.svg")
    environment.globals["style"] = Markup(_template_text(environment, "report.css"))  # noqa: S704 (our own file)
    return environment.get_template("report.html.j2").render(content)


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


def _inline_svg(path: Path) -> Markup:
    """An SVG without its fixed size, so that it shrinks with the page; its ids get the chart's name as prefix."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ServelabError(f"{path}: {error.strerror}; draw it with scripts/plot_charts.py") from None
    opening = re.search(r'<svg[^>]* width="([\d.]+)" height="[\d.]+"[^>]*>', text)
    if opening is None:
        raise ServelabError(f"{path}: not an SVG with a size; draw it with scripts/plot_charts.py")
    start = re.sub(r' (width|height)="[\d.]+"', "", opening.group())
    start = start.replace("<svg", f'<svg role="img" style="max-width:{opening.group(1)}px"', 1)
    body = re.sub(r'(\bid="|url\(#)', rf"\g<1>{path.stem}-", text[opening.end() :])
    return Markup(start + body)  # noqa: S704 (drawn by vl-convert, which escapes its texts)
