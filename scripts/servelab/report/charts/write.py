"""Draws the charts of a study and writes them as SVG, PNG and Vega-Lite JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import altair as alt
import pandas as pd
import vl_convert

from servelab.core.files import replacing
from servelab.metrics.tables.io import read_tables
from servelab.report.charts import CHARTS, VEGA_LITE, Chart
from servelab.report.charts.curves import with_limits
from servelab.report.charts.proof import proof_rows
from servelab.search.decision import Decision
from servelab.search.recommended import Recommended
from servelab.study.project import StudySummary
from servelab.study.study import AFTER_SEARCH, LAST_STAGES

PNG_SCALE = 2
_NAMED = re.compile(r'<path aria-label="([^"]*)" role="graphics-symbol" aria-roledescription="[^"]*"([^>]*)/>')
"""A mark with a description, as vl-convert writes it; as a title, browsers show it without a script."""


def draw_charts(found: Mapping[str, Any], folder: Path) -> None:
    """Draws all charts of a report; `found` has the inputs of the rule `render_report`, by name."""
    proof = Recommended.read(found["recommended"]).proof
    charts = study_charts(
        StudySummary.read(found["study"]),
        read_tables(found["stages"]),
        [Decision.read(path) for path in found["decisions"]],
        read_tables([found["improvements"]]),
        proof.promised_change_percent if proof else None,
        read_tables([found["curves"]]),
    )
    folder.mkdir(parents=True, exist_ok=True)
    for chart, frame in charts:
        write_chart(chart, frame, {kind: folder / f"{chart.name}.{kind}" for kind in ("svg", "png", "json")})


def study_charts(
    study: StudySummary,
    table: pd.DataFrame,
    decisions: Sequence[Decision],
    improvements: pd.DataFrame,
    promised_percent: float | None,
    curves: pd.DataFrame,
) -> Iterator[tuple[Chart, pd.DataFrame]]:
    """Each chart of a study's report with its rows.

    `table` has the rows of all stage tables. Of the improvements, those of the study's objective are drawn.
    `promised_percent` is the change that the search promised to the proof. `curves` has schemas.CURVES.
    """
    metric, basis = study.objective.metric_and_basis
    comparison = table[table["stage"].isin(LAST_STAGES)].reset_index(drop=True)
    of_objective = improvements[(improvements["metric"] == metric) & (improvements["basis"] == basis)]
    tables = {
        "proof": proof_rows(study, comparison, of_objective, promised_percent),
        "search": add_decisions(table[~table["stage"].isin(AFTER_SEARCH)].reset_index(drop=True), decisions),
        "curves": with_limits(curves, study),
    }
    return ((chart, tables[chart.reads]) for chart in CHARTS)


def add_decisions(frame: pd.DataFrame, decisions: Sequence[Decision]) -> pd.DataFrame:
    """Adds `stage_title`, `is_winner` and `verdict` to stage tables."""
    titles = {decision.stage: decision.title for decision in decisions}
    winners = {(decision.stage, decision.winner.candidate) for decision in decisions}
    verdicts = {(each.stage, verdict.candidate): verdict.verdict for each in decisions for verdict in each.candidates}
    keys = list(zip(frame["stage"], frame["candidate"], strict=True))
    return frame.assign(
        stage_title=[titles.get(stage, stage) for stage, _ in keys],
        is_winner=pd.Series([key in winners for key in keys], dtype=bool, index=frame.index),
        verdict=pd.Series([verdicts.get(key) for key in keys], dtype=object, index=frame.index),
    )


def write_chart(chart: Chart, frame: pd.DataFrame, outputs: Mapping[str, Path]) -> None:
    """Builds the chart and writes each file whole or not at all; none of a chart that shows nothing."""
    with alt.data_transformers.disable_max_rows():
        built = chart.build(frame)
        if built is None:
            return
        spec = built.to_dict()
    drawn = vl_convert.vegalite_to_svg(spec, vl_version=VEGA_LITE)
    svg = _NAMED.sub(r"<path\2><title>\1</title></path>", drawn)
    contents: dict[str, Callable[[], bytes]] = {
        "svg": svg.encode,
        "png": lambda: vl_convert.svg_to_png(svg, scale=PNG_SCALE),
        "json": json.dumps(spec).encode,
    }
    for file_format, path in outputs.items():
        with replacing(path) as temporary:
            temporary.write_bytes(contents[file_format]())
