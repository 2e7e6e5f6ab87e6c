"""Prints a study's recommended serving command, its gain on every workload, and the path of its report."""

import argparse
from pathlib import Path

from servelab.report.json_output import ReportOutput, print_line
from servelab.report.measured_runs import MeasuredRuns
from servelab.results.past_runs import STUDY_FOLDER, finished_studies, study_folder
from servelab.search.recommendation_text import answer_text, render_recommendation
from servelab.search.recommended import Recommended


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("studies", type=Path, nargs="*", help=f"{STUDY_FOLDER}; default: all that are finished")
    parser.add_argument("--json", action="store_true", help="print a JSON object for each study")
    parser.add_argument("--results", type=Path, default=Path("results"), help="default: results")
    return parser


def main(arguments: argparse.Namespace) -> None:
    studies = [study_folder(study, arguments.results) for study in arguments.studies]
    for study in studies or finished_studies(arguments.results):
        recommended = Recommended.read(study / "recommended.json")
        if arguments.json:
            (kind, text), page = answer_text(recommended), str(study / "report.html")
            print_line(ReportOutput(study=study.name, kind=kind, answer=text, report=page, recommended=recommended))
            continue
        runs = study.parents[1] / "runs"
        is_there = (runs / recommended.run_id / "spec.json").exists()
        has_name = is_there and MeasuredRuns(runs).model_has_name(recommended.run_id)
        print(f"\n{render_recommendation(recommended, study / 'report.html', has_name)}\n")
