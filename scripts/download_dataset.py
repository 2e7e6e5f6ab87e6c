"""Downloads one dataset of config/datasets.yaml, checked against its pinned sha256."""

from __future__ import annotations

import argparse
from pathlib import Path

from servelab.claims import claim
from servelab.cli import run
from servelab.datasets import fetch_dataset, load_datasets
from servelab.errors import ConfigError
from servelab.registry import nearest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--datasets", type=Path, required=True, help="config/datasets.yaml")
    parser.add_argument("--name", required=True, help="name of the dataset there")
    parser.add_argument("--output", type=Path, required=True, help="dataset.json to write, beside the file")
    arguments = parser.parse_args()
    datasets = load_datasets(arguments.datasets)
    if arguments.name not in datasets:
        raise ConfigError(f"unknown dataset `{arguments.name}`{nearest(arguments.name, list(datasets))}")
    with claim(arguments.output):  # a second download finds the file there
        fetch_dataset(arguments.name, datasets[arguments.name], arguments.output.parent)


if __name__ == "__main__":
    run(main)
