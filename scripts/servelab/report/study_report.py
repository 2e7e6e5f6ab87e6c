"""Renders the report of a study from its folder alone, without its study file and without a workflow."""

from __future__ import annotations

from pathlib import Path

from servelab.core.files import write_text
from servelab.metrics.tables.io import read_tables
from servelab.report.card import write_card
from servelab.report.measured_runs import MeasuredRuns
from servelab.report.render import report_content, report_html, report_markdown
from servelab.report.table_files import write_tables
from servelab.search.decision import Decision
from servelab.search.recommended import Recommended
from servelab.study.study import CONFIRM
from servelab.study.summary import StudySummary

RENDERED = ("report.html", "report.md", "card.md", "card.png", "tables")
"""What rendering writes into the folder of a study."""


def render_live_report(results: Path, study: str, beside: Path | None) -> None:
    """Renders the report of a finished live study again.

    `beside` is the folder of the recorded study of this name, if the report shows it. A missing or broken file is a
    `ServelabError`.
    """
    folder = results / "studies" / study
    summary = StudySummary.read(folder / "study.json")
    searched = [stage.name for stage in summary.stages]
    stages = read_tables([folder / "stages" / stage / "table.parquet" for stage in [*searched, CONFIRM]])
    own = {name: folder / f"{name}.parquet" for name in ("history", "answers")}
    # archives of earlier versions may lack these
    if (curves := folder / "curves.parquet").exists():
        own["curves"] = curves
    asked = [folder / "stages" / stage / "answers.parquet" for stage in [*searched, CONFIRM]]
    asked = [path for path in asked if path.exists()]
    optional = own | ({"beside": beside / "improvements.parquet"} if beside else {})
    metrics, search = read_tables([folder / "metrics.parquet"]), read_tables([folder / "search.parquet"])
    content = report_content(
        summary,
        Recommended.read(folder / "recommended.json"),
        stages,
        [Decision.read(folder / "stages" / stage / "decision.json") for stage in searched],
        read_tables([folder / "improvements.parquet"]),
        metrics,
        read_tables([folder / "checks.parquet"]),
        MeasuredRuns(results / "runs", study),
        search=search,
        asked=read_tables(asked) if asked else None,
        drawn={path.stem for path in (folder / "charts").glob("*.svg")},
        **{name: read_tables([path]) for name, path in optional.items()},
    )
    write_tables(folder / "tables", content, {"stages": stages, "metrics": metrics, "search": search})
    write_card(content["card"], folder / "card.md", folder / "card.png")
    write_text(folder / "report.md", report_markdown(content))
    write_text(folder / "report.html", report_html(content, folder / "charts"))
