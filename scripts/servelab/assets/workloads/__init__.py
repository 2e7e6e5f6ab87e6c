"""Workloads: the exact requests, generated once for all engines; each kind is one file that registers itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import pyarrow as pa
from pydantic import Field, ValidationError

from servelab.assets.datasets import Dataset, load_stored_dataset, read_named_entries
from servelab.assets.pinned_file import StoredDataset
from servelab.core.errors import ConfigError, ServelabError
from servelab.core.registry import Registry, nearest
from servelab.core.run_spec import ModelSource, Strict, WorkloadSpec
from servelab.core.yaml_file import describe_validation_error
from servelab.metrics.tables.schemas import TURNS, WORKLOAD_REQUESTS

if TYPE_CHECKING:
    from tokenizers import Tokenizer

WARMUP_REQUESTS = 64
"""Warm-up rows of every workload; a protocol uses the first `warmup_requests` of them."""


class Parameters(Strict):
    """Parameters of every kind of workload."""

    num_requests: int = Field(gt=0, description="Number of measured requests.")
    seed: int = Field(description="Seed of the random generator.")
    endpoint: Literal["chat", "completions"] = Field(description="OpenAI endpoint that gets the requests.")
    ignore_eos: bool = Field(
        True,
        exclude_if=lambda value: value,
        description="False lets answers end by themselves: their lengths are then the longest that they may have.",
    )


class Workload(ABC):
    """One kind of workload; raise `version` when the same parameters give other requests."""

    kind: ClassVar[str]
    version: ClassVar[str]
    Parameters: ClassVar[type[Any]]
    sends_token_ids: ClassVar[bool] = False
    """Whether its prompts are token ids instead of text."""
    sends_turns: ClassVar[bool] = False
    """Whether a request may follow the answer to another, which only Servelab's own client can send."""
    has_arrival_times: ClassVar[bool] = False
    """Whether its requests have the times of recorded traffic, which `arrivals: replay` needs."""
    needs_dataset: ClassVar[bool] = False
    """If true, the parameters have `dataset_sha256`; the configuration names the dataset as `dataset` instead."""

    def longest_tokens(self, parameters: Any) -> int | None:
        """Most tokens that a request can have, prompt and output together; None if the parameters set no limit."""
        return None

    def shared_input(self, parameters: Mapping[str, Any]) -> float | None:
        """Share of the prompts' tokens, 0 to 1, that a prefix cache can serve; None if it is not known."""
        return None

    @abstractmethod
    def make(self, parameters: Any, tokenizer: Tokenizer, dataset: Path | None) -> pa.Table:
        """All rows, of `schemas.WORKLOAD_REQUESTS`: the measured ones, then `WARMUP_REQUESTS` with other prompts.

        The columns of `schemas.TURNS` follow where a request has several messages. `dataset` is the path of a
        `dataset.json`. `ServelabError` if the rows cannot be generated.
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
    parameters: dict[str, Any] = Field(description="All parameters, defaults included; the dataset by its sha256.")
    dataset: str | None = Field(description="Name of its dataset, if it has one.")

    @property
    def endpoint(self) -> str:
        """`chat` or `completions`."""
        return str(self.parameters["endpoint"])

    def spec(self, tokenizer: ModelSource) -> WorkloadSpec:
        """The workload's specification for a model, whose tokenizer counts the tokens."""
        return WorkloadSpec(
            kind=self.kind,
            parameters=self.parameters,
            tokenizer=tokenizer,
            generator_version=WORKLOADS.get(self.kind).version,
        )


def load_workloads(path: Path, datasets: dict[str, Dataset]) -> dict[str, NamedWorkload]:
    """All workloads by name; `ConfigError` with file, key and the nearest valid name."""
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
    """The rows as `WORKLOAD_REQUESTS`, with the columns of `TURNS` where a row has one of them."""
    empty = dict.fromkeys((*WORKLOAD_REQUESTS.names, *TURNS.names))
    rows = [
        {**empty, "request_index": index, "phase": phase, **row}
        for phase, phase_rows in (("measured", measured), ("warmup", warmup))
        for index, row in enumerate(phase_rows)
    ]
    several = any(row[name] is not None for row in rows for name in TURNS.names)
    return pa.Table.from_pylist(rows, schema=pa.schema([*WORKLOAD_REQUESTS, *(TURNS if several else ())]))


def open_dataset(path: Path | None, sha256: str) -> tuple[StoredDataset, Path]:
    """The dataset of a workload, by its `dataset.json`, and its file; `ServelabError` if it has another sha256."""
    if path is None:
        raise ServelabError("this kind of workload needs a dataset")
    stored, file = load_stored_dataset(path)
    if stored.sha256 != sha256:
        wrong = f"{path}: holds {stored.name} (sha256 {stored.sha256[:12]}…)"
        raise ServelabError(f"{wrong}, but the workload needs {sha256[:12]}…")
    return stored, file


def generator(seed: int) -> Random:
    """The random generator of a workload: Python gives the same sequence in all versions and on all machines."""
    return Random(seed)  # noqa: S311 (not for secrets)


WORKLOADS: Registry[Workload] = Registry("workload kind")
WORKLOADS.load(__name__)
