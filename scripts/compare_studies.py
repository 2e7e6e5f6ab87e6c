"""Compares two studies: engines, versions, dates or sites side by side, and what is not comparable."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from servelab.archive.layout import ARCHIVE, unpacked_study
from servelab.metrics.tables.io import write_table
from servelab.report.compare.comparison_table import StudyComparison, compare_studies
from servelab.report.compare.conditions import (
    EXIT_CODES,
    ConditionResult,
    names_of,
    read_condition,
    try_conditions,
    verdict_of,
)
from servelab.report.compare.page import comparison_page, summary
from servelab.report.compare.sides import read_side
from servelab.report.json_output import compare_output, print_line
from servelab.report.page import write_page
from servelab.results.past_runs import STUDY_FOLDER, study_folder


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("studies", nargs=2, type=Path, help=f"{STUDY_FOLDER}; or an archive, which is unpacked")
    parser.add_argument("--names", nargs=2, metavar=("A", "B"), help="names for them; default: by their folders")
    parser.add_argument("--output", type=Path, help="folder; default: results/comparisons/<a>--<b>")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    judging = parser.add_argument_group(
        "conditions", "exit code 0: better or the same; 3: worse, a condition is met; 4: cannot tell; others: an error"
    )
    judging.add_argument(
        "--fail-if", action="append", default=[], metavar="CONDITION", help="as 'ttft_ms > +5%%' of A to B; repeatable"
    )
    judging.add_argument(
        "--of",
        choices=("answers", "configurations"),
        default="answers",
        help="compare the two recommended configurations, or each that both studies measured (default: answers)",
    )
    return parser


def main(arguments: argparse.Namespace) -> None:
    conditions = [read_condition(text) for text in arguments.fail_if]
    given = [each if each.suffix == ARCHIVE else study_folder(each, Path("results")) for each in arguments.studies]
    names = arguments.names or names_of([each.with_suffix("") if each.suffix == ARCHIVE else each for each in given])
    folder = arguments.output or Path("results/comparisons") / "--".join(names)
    pairs = list(zip(given, names, strict=True))
    studies = [unpacked_study(each, folder / name) if each.suffix == ARCHIVE else each for each, name in pairs]
    sides = [read_side(path, name) for path, name in zip(studies, names, strict=True)]
    comparison = compare_studies(sides[0], sides[1])
    write_table(comparison.table, folder / "comparison.parquet")
    write_page(comparison_page(comparison, folder), folder / "comparison.html", folder / "comparison.md")
    findings = try_conditions(comparison, conditions, answers=arguments.of == "answers")
    if arguments.json:
        print_line(compare_output(comparison, findings))
    else:
        _show(comparison, findings)
        print(f"Page: {folder / 'comparison.html'}")
    if conditions:
        sys.exit(EXIT_CODES[verdict_of(findings)])


def _show(comparison: StudyComparison, findings: Sequence[ConditionResult]) -> None:
    print(summary(comparison))
    for judged in comparison.configurations:
        run = judged.pair.runs[0]
        print(f"    {run.label} on {run.workload}: {judged.verdict}: {judged.why}")
    for finding in findings:
        print(f"{finding.word}: {finding.condition}: {finding.configuration} on {finding.workload}: {finding.why}")
    if findings:
        print(f"Verdict: {verdict_of(findings)}")
