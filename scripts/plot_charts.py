"""Draws all charts of a study's report, each as SVG, PNG and Vega-Lite JSON."""

from __future__ import annotations

from servelab.core.cli import RuleJob, run_rule
from servelab.metrics.tables.io import read_tables
from servelab.report.charts.write import study_charts, write_chart
from servelab.search.decision import Decision
from servelab.search.recommended import Recommended
from servelab.study.project import StudySummary

OF_RUNS = ("timeline", "device_series")


def main(rule: RuleJob) -> None:
    found, folder = rule.input, rule.output.charts
    proof = Recommended.read(found.recommended).proof
    charts = study_charts(
        StudySummary.read(found.study),
        read_tables(found.stages),
        [Decision.read(path) for path in found.decisions],
        read_tables([found.improvements]),
        proof and proof.promised_change_percent,
        {name: read_tables([found[name]]) for name in OF_RUNS if name in found},
        curves=read_tables([found.curves]),
    )
    folder.mkdir(parents=True, exist_ok=True)
    for chart, frame in charts:
        write_chart(chart, frame, {kind: folder / f"{chart.name}.{kind}" for kind in ("svg", "png", "json")})


if __name__ == "__main__":
    run_rule(main)
