"""Converts a GGUF model to a Hugging Face folder; run it with the Python of an engine that serves such folders."""

from __future__ import annotations

import argparse
from pathlib import Path

from servelab.assets.model_files import convert_model
from servelab.core.cli import run
from servelab.core.result_lock import make_if_missing


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True, help="model.json of the GGUF model")
    parser.add_argument("--output", type=Path, required=True, help="model.json to write, beside the converted model")
    arguments = parser.parse_args()
    make_if_missing(arguments.output, lambda: convert_model(arguments.model, arguments.output.parent))


if __name__ == "__main__":
    run(main)
