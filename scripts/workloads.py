"""Datasets, downloaded and checked by their pinned sha256, and the requests of workloads, made once for all engines."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import ValidationError

from servelab.answers.sets import QUESTIONS
from servelab.assets.datasets import fetch_dataset, load_datasets
from servelab.assets.model_files import load_model, load_tokenizer
from servelab.assets.pinned_file import StoredWorkload
from servelab.assets.workloads import WORKLOADS
from servelab.core.cli import RuleJob, run_rule
from servelab.core.errors import ConfigError
from servelab.core.files import own_or_shipped, replacing
from servelab.core.identity import file_sha256, workload_id
from servelab.core.registry import nearest
from servelab.core.result_lock import claim, make_if_missing
from servelab.core.run_spec import WorkloadSpec
from servelab.core.yaml_file import describe_validation_error

DATASETS = "config/datasets.yaml"


def download_dataset(rule: RuleJob) -> None:
    name, content, output = rule.wildcards.dataset, rule.wildcards.content, rule.output.dataset
    datasets = load_datasets(own_or_shipped(Path(), DATASETS))
    if name not in datasets:
        raise ConfigError(f"unknown dataset `{name}`{nearest(name, list(datasets))}")
    if not datasets[name].sha256.startswith(content):
        wrong = f"{name}.sha256: does not begin with {content}"
        raise ConfigError(f"{DATASETS}: {wrong}: the file was edited meanwhile; run again")
    with claim(output):  # a second process then finds the file and downloads nothing
        fetch_dataset(name, datasets[name], output.parent)


def replay(arrivals_s: Sequence[float]) -> str:
    """How long a replay takes, and a doubt about a rate that traces of servers do not have."""
    rate = len(arrivals_s) / max(max(arrivals_s), 1e-3)
    doubt = "" if 0.01 < rate < 100 else "; that is implausible: are its times in the unit of its format?"
    return f"a replay of {len(arrivals_s):,} requests takes {max(arrivals_s):,.2f} s, {rate:,.2f} a second{doubt}"


def prepare_workload(rule: RuleJob) -> None:
    dataset = next(iter(rule.input.get("dataset", [])), None)  # for kinds of workload that need one
    try:
        spec = WorkloadSpec.model_validate_json(rule.params.spec)
        workload = QUESTIONS if spec.kind == QUESTIONS.kind else WORKLOADS.get(spec.kind)
        parameters = workload.Parameters.model_validate(spec.parameters)
    except ValidationError as error:
        raise ConfigError(describe_validation_error(error, "spec", WorkloadSpec)) from None
    if spec.generator_version != workload.version:
        raise ConfigError(f"spec: needs version {spec.generator_version} of `{spec.kind}`, this is {workload.version}")

    def make() -> None:
        """Writes the requests, and workload.json beside them."""
        _, _, tokenizer_json = load_model(rule.input.model)
        requests = workload.make(parameters, load_tokenizer(tokenizer_json), dataset)
        measured = requests.filter(pc.equal(requests["phase"], "measured"))
        if times := measured["arrival_s"].drop_null().to_pylist():
            print(f"{path}: {replay(times)}", file=sys.stderr, flush=True)
        with replacing(path) as temporary:
            pq.write_table(requests, temporary)
            summary = StoredWorkload(
                workload_id=workload_id(spec),
                spec=spec,
                requests=measured.num_rows,
                input_tokens=pc.sum(measured["input_tokens"]).as_py(),
                output_tokens=pc.sum(measured["output_tokens"]).as_py(),
                requests_sha256=file_sha256(temporary),
            )
            summary.write(path.with_name("workload.json"))

    path = rule.output.requests
    make_if_missing(path, make)


if __name__ == "__main__":
    run_rule(globals())
