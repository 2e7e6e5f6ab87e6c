"""Hands the published figures of finished studies to another tool: Prometheus, OpenTelemetry or MLflow.

Parquet and CSV need no export: they are in the study's folder and in its `tables/`.
"""

import argparse
from pathlib import Path

from servelab.core.cli import run
from servelab.core.files import write_text
from servelab.report.export import EXPORTS
from servelab.report.export.figures import exported
from servelab.results.past_runs import STUDY_FOLDER, study_folder


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", type=Path, help=STUDY_FOLDER)
    parser.add_argument("--to", choices=EXPORTS.names(), default="prometheus")
    addresses = (f"{name}: {EXPORTS.get(name).address}" for name in EXPORTS.names() if EXPORTS.get(name).address)
    parser.add_argument("--uri", help=f"where to; {'; '.join(addresses)}")
    parser.add_argument("--output", type=Path, metavar="FILE", help="file for the text; default: print it")
    parser.add_argument("--results", type=Path, default=Path("results"))
    return parser


def main(arguments: argparse.Namespace) -> None:
    study = exported(study_folder(arguments.study, arguments.results))
    text = EXPORTS.get(arguments.to).export(study, arguments.uri)
    if arguments.output:
        write_text(arguments.output, text)
    else:
        print(text.rstrip("\n"))


if __name__ == "__main__":
    run(lambda: main(options().parse_args()))
