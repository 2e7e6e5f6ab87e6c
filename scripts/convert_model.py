"""Converts a GGUF model to a Hugging Face folder; runs with the python of an engine that serves such folders."""

from __future__ import annotations

import argparse
from pathlib import Path

from servelab.claims import once
from servelab.cli import run
from servelab.conversion import convert_model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True, help="model.json of the GGUF model")
    parser.add_argument("--output", type=Path, required=True, help="model.json to write, beside the converted model")
    arguments = parser.parse_args()
    once(arguments.output, lambda: convert_model(arguments.model, arguments.output.parent))


if __name__ == "__main__":
    run(main)
