"""Downloads one dataset of config/datasets.yaml and checks its pinned sha256."""

from __future__ import annotations

from pathlib import Path

from servelab.assets.datasets import fetch_dataset, load_datasets
from servelab.core.cli import RuleJob, run_rule
from servelab.core.errors import ConfigError
from servelab.core.files import own_or_shipped
from servelab.core.registry import nearest
from servelab.core.result_lock import claim

DATASETS = "config/datasets.yaml"


def main(rule: RuleJob) -> None:
    name, content, output = rule.wildcards.dataset, rule.wildcards.content, rule.output.dataset
    datasets = load_datasets(own_or_shipped(Path(), DATASETS))
    if name not in datasets:
        raise ConfigError(f"unknown dataset `{name}`{nearest(name, list(datasets))}")
    if not datasets[name].sha256.startswith(content):
        wrong = f"{name}.sha256: does not begin with {content}"
        raise ConfigError(f"{DATASETS}: {wrong}: the file was edited meanwhile; run again")
    with claim(output):  # a second process then finds the file and downloads nothing
        fetch_dataset(name, datasets[name], output.parent)


if __name__ == "__main__":
    run_rule(main)
