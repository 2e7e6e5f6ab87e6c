"""Writes a GGUF model in another of llama.cpp's number formats."""

import argparse
from pathlib import Path

from servelab.claims import once
from servelab.cli import run
from servelab.quantization import FORMATS, quantize_model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True, help="model.json of the GGUF model")
    parser.add_argument("--quantization", required=True, choices=sorted(FORMATS))
    parser.add_argument("--output", type=Path, required=True, help="model.json to write, beside the new file")
    arguments = parser.parse_args()
    folder = arguments.output.parent
    once(arguments.output, lambda: quantize_model(arguments.model, arguments.quantization, folder))


if __name__ == "__main__":
    run(main)
