"""Downloads one dataset of config/datasets.yaml and checks its pinned sha256."""

from __future__ import annotations

import argparse
from pathlib import Path

from servelab.assets.datasets import fetch_dataset, load_datasets
from servelab.core.cli import run
from servelab.core.errors import ConfigError
from servelab.core.files import own_or_shipped
from servelab.core.registry import nearest
from servelab.core.result_lock import claim


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--datasets", type=Path, required=True, help="config/datasets.yaml; the checkout's if it is not there"
    )
    parser.add_argument("--name", required=True, help="name of the dataset there")
    parser.add_argument("--content", required=True, help="first characters of the sha256 that is wanted")
    parser.add_argument("--output", type=Path, required=True, help="dataset.json to write, beside the file")
    arguments = parser.parse_args()
    datasets = load_datasets(own_or_shipped(Path(), arguments.datasets))
    if arguments.name not in datasets:
        raise ConfigError(f"unknown dataset `{arguments.name}`{nearest(arguments.name, list(datasets))}")
    if not datasets[arguments.name].sha256.startswith(arguments.content):
        wrong = f"{arguments.name}.sha256: does not begin with {arguments.content}"
        raise ConfigError(f"{arguments.datasets}: {wrong}: the file was edited meanwhile; run again")
    with claim(arguments.output):  # a second process then finds the file and downloads nothing
        fetch_dataset(arguments.name, datasets[arguments.name], arguments.output.parent)


if __name__ == "__main__":
    run(main)
