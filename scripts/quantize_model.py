"""Writes a GGUF model in another of llama.cpp's number formats."""

import argparse
from pathlib import Path

from servelab.assets.model_files import quantize_model
from servelab.core.cli import run
from servelab.core.result_lock import make_if_missing
from servelab.core.run_spec import QUANTIZATIONS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True, help="model.json of the GGUF model")
    parser.add_argument("--quantization", required=True, choices=sorted(QUANTIZATIONS))
    parser.add_argument("--output", type=Path, required=True, help="model.json to write, beside the new file")
    arguments = parser.parse_args()
    folder = arguments.output.parent
    make_if_missing(arguments.output, lambda: quantize_model(arguments.model, arguments.quantization, folder))


if __name__ == "__main__":
    run(main)
