"""Workloads: the exact requests, made once and used for every engine; each kind is one file that registers itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, Literal, Protocol

import pyarrow as pa
from pydantic import Field, ValidationError
from tokenizers import Tokenizer

from servelab.config_file import describe_validation_error
from servelab.datasets import Dataset, read_named_entries
from servelab.errors import ConfigError
from servelab.registry import Registry, nearest
from servelab.schemas import WORKLOAD_REQUESTS
from servelab.spec import ModelSource, Strict, WorkloadSpec

WARMUP_REQUESTS = 64
"""Warm-up rows of every workload; a protocol uses as many of them as it asks for."""


class Parameters(Strict):
    """What every kind of workload has."""

    num_requests: int = Field(gt=0, description="Measured requests.")
    seed: int = Field(description="Seed of every draw.")
    endpoint: Literal["chat", "completions"] = Field(description="OpenAI endpoint the requests go to.")


class Workload(Protocol):
    """One kind of workload; `version` is raised when the same parameters would give other requests."""

    kind: str
    version: str
    Parameters: type[Any]
    sends_token_ids: bool
    """Whether its prompts are token ids, and not text."""
    has_arrival_times: bool
    """Whether its requests have the times of recorded traffic, which `arrivals: replay` needs."""
    needs_dataset: bool
    """Where true, the parameters have `dataset_sha256`, which the configuration gives as `dataset`, a name."""

    def longest_tokens(self, parameters: Any) -> int | None:
        """Most tokens of a request, prompt and output together, by the parameters; None where they set no limit."""

    def make(self, parameters: Any, tokenizer: Tokenizer, dataset: Path | None) -> pa.Table:
        """All rows, of `schemas.WORKLOAD_REQUESTS`: the measured ones, then `WARMUP_REQUESTS` that share no prompt.

        `dataset` is the path of a `dataset.json`. Raises `ServelabError` where the rows cannot be made.
        """


class NamedEntry(Strict):
    """An entry of config/workloads.yaml; its parameters are checked by its kind."""

    kind: str
    title: str = Field(description="Name for reports.")
    parameters: dict[str, Any]


class NamedWorkload(Strict):
    """A workload of config/workloads.yaml."""

    name: str
    title: str
    kind: str
    parameters: dict[str, Any] = Field(description="All of them, defaults too; the dataset by its sha256.")
    dataset: str | None = Field(description="Name of the dataset it is made from.")

    @property
    def endpoint(self) -> str:
        """`chat` or `completions`."""
        return str(self.parameters["endpoint"])

    def spec(self, tokenizer: ModelSource) -> WorkloadSpec:
        """The workload's identity, with a model's tokenizer counting the tokens."""
        return WorkloadSpec(
            kind=self.kind,
            parameters=self.parameters,
            tokenizer=tokenizer,
            generator_version=WORKLOADS.get(self.kind).version,
        )


def load_workloads(path: Path, datasets: dict[str, Dataset]) -> dict[str, NamedWorkload]:
    """All workloads by name; a mistake is a `ConfigError` with file, key and the nearest valid name."""
    workloads = {}
    for name, raw in read_named_entries(path).items():
        where = f"{path}: {name}"
        try:
            entry = NamedEntry.model_validate(raw)
        except ValidationError as error:
            raise ConfigError(describe_validation_error(error, where, NamedEntry)) from None
        if entry.kind not in WORKLOADS.names():
            wrong = f"unknown workload kind `{entry.kind}`{nearest(entry.kind, WORKLOADS.names())}"
            raise ConfigError(f"{where}: kind: {wrong}")
        workload = WORKLOADS.get(entry.kind)
        given, dataset = dict(entry.parameters), None
        if workload.needs_dataset:
            dataset = str(given.pop("dataset", ""))
            if dataset not in datasets:
                wrong = f"unknown dataset `{dataset}`{nearest(dataset, list(datasets))}"
                raise ConfigError(f"{where}: parameters.dataset: {wrong}")
            given["dataset_sha256"] = datasets[dataset].sha256
        try:
            parameters = workload.Parameters.model_validate(given)
        except ValidationError as error:
            raise ConfigError(describe_validation_error(error, f"{where}: parameters", workload.Parameters)) from None
        workloads[name] = NamedWorkload(
            name=name,
            title=entry.title,
            kind=entry.kind,
            parameters=parameters.model_dump(mode="json"),
            dataset=dataset,
        )
    return workloads


def table(measured: Sequence[dict[str, Any]], warmup: Sequence[dict[str, Any]]) -> pa.Table:
    """Rows in the order of the file; each gives `prompt` or `prompt_token_ids`, `input_tokens`, `output_tokens`."""
    rows = [
        {"request_index": index, "phase": phase, "prompt": None, "prompt_token_ids": None, "arrival_s": None, **row}
        for phase, phase_rows in (("measured", measured), ("warmup", warmup))
        for index, row in enumerate(phase_rows)
    ]
    return pa.Table.from_pylist(rows, schema=WORKLOAD_REQUESTS)


def generator(seed: int) -> Random:
    """The source of every draw: Python keeps its sequences the same over versions and machines."""
    return Random(seed)  # noqa: S311 (not for secrets)


WORKLOADS: Registry[Workload] = Registry("workload kind")
WORKLOADS.load(__name__)
