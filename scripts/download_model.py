"""Fetches one model and describes it in model.json."""

from __future__ import annotations

import argparse
from pathlib import Path

from servelab.assets.model_files import fetch_model, parse_source
from servelab.core.cli import run
from servelab.core.result_lock import make_if_missing


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", required=True, help="the model source of the study, as JSON")
    parser.add_argument("--output", type=Path, required=True, help="model.json to write, beside the model")
    arguments = parser.parse_args()
    make_if_missing(arguments.output, lambda: fetch_model(parse_source(arguments.source), arguments.output.parent))


if __name__ == "__main__":
    run(main)
