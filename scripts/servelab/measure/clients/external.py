"""Base class of load clients that others wrote: their input files, what they do not support, their records."""

from __future__ import annotations

import json
import shutil
import time
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from servelab.core.credentials import shell_variables
from servelab.core.errors import ConfigError, ServelabError
from servelab.core.run_spec import Arrivals, ProtocolSpec
from servelab.engines.endpoint import Address
from servelab.measure.clients import Client
from servelab.measure.load import LoadPlan, LoadResult, LoadStats
from servelab.measure.load.requests import read_workload
from servelab.metrics.tables import schemas

Row = dict[str, Any]


class ExternalClient(Client):
    """A load client with its own environment, which saves its results as JSON."""

    arrivals: frozenset[Arrivals]
    """Arrivals that it supports at a finite rate."""
    unsupported: ClassVar[Mapping[str, str]]
    """Fields of the protocol that it supports only at their default → why."""
    results: str
    """Its result file, relative to the folder of a round."""

    @property
    def lock(self) -> str:
        return f"envs/{self.name}.lock.txt"

    def version_command(self, python: Path) -> list[str]:
        find = f"next(d.version for d in distributions() if d.name in {self.packages!r})"
        return [str(python), "-c", f"from importlib.metadata import distributions; print({find})"]

    def check(self, protocol: ProtocolSpec, *, token_ids: bool, turns: bool) -> None:
        for field, why in self.unsupported.items():
            value = getattr(protocol, field)
            if value != ProtocolSpec.model_fields[field].default:
                raise ConfigError(f"client {self.name} cannot do `{field}: {value}`: {why}")
        open_loop = protocol.request_rate != "inf" or protocol.arrivals == "replay"
        if open_loop and protocol.arrivals not in self.arrivals:
            known = ", ".join(sorted(self.arrivals))
            raise ConfigError(f"client {self.name} cannot do `arrivals: {protocol.arrivals}`; it supports {known}")
        if token_ids:
            raise ConfigError(
                f"client {self.name} sends text only, and this workload has token ids: use client `servelab`, or a "
                "workload of text"
            )
        if turns:
            raise ConfigError(
                f"client {self.name} sends one message a request, and this workload has several: use client `servelab`"
            )

    def command(self, plan: LoadPlan, folder: Path, python: Path) -> list[str]:
        if Address(plan.base_url, plan.model, plan.api_key_env, plan.header_env).needs_own_client:
            raise ConfigError(f"client {self.name} is used without TLS, headers and a path: use client `servelab`")
        rows = read_workload(plan).to_pylist()
        turns = any(row.get("earlier") or row.get("turn") for row in rows)
        fields = plan.model_dump(include=set(ProtocolSpec.model_fields) - {"rounds", "warmup_requests"})
        protocol = ProtocolSpec(**fields, client_processes=plan.processes)
        self.check(protocol, token_ids=any(row["prompt"] is None for row in rows), turns=turns)
        shell = shell_variables()
        given = {**shell.needed, **shell.passed, "HF_HUB_OFFLINE": "1"}
        variables = [f"{name}={value}" for name, value in given.items()]
        return ["env", "--ignore-environment", *variables, *self.prepare(plan, rows, folder, python)]

    def read(self, plan: LoadPlan, folder: Path) -> LoadResult:
        rows = read_workload(plan).to_pylist()
        try:
            origin_monotonic_s, columns_of = self.records(plan, rows, folder / self.results)
            records = _table(plan, rows, columns_of)
        except (OSError, ValueError, KeyError, IndexError, TypeError) as failure:
            raise ServelabError(f"{folder}: not the results of {self.name}: {failure!r}") from failure
        return LoadResult(records, LoadStats(origin_monotonic_s=origin_monotonic_s))

    def has_ended(self, returncode: int, folder: Path) -> bool:
        """See `Client.has_ended`; one may exit with 1 because requests failed."""
        return returncode == 0 or (folder / self.results).exists()

    def out_of_time(self, plan: LoadPlan) -> LoadResult:
        rows = read_workload(plan).to_pylist()
        error = f"round_timeout: the round took longer than {plan.timeout_s:g} s"
        columns = {"scheduled_s": 0.0, "end_s": plan.timeout_s, "error": error}
        return LoadResult(_table(plan, rows, [columns] * len(rows)), LoadStats())

    @abstractmethod
    def prepare(self, plan: LoadPlan, rows: list[Row], folder: Path, python: Path) -> list[str]:
        """Writes the requests (rows of `schemas.WORKLOAD_REQUESTS`) into `folder`; returns the client's command."""

    @abstractmethod
    def records(self, plan: LoadPlan, rows: list[Row], results: Path) -> tuple[float, list[Row]]:
        """The round's time 0 on the system's monotonic clock, and for each row what the client reports about it.

        That is a value for columns of `schemas.RUN_REQUESTS`; columns that the client does not report stay null.
        """


def write_lines(path: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    """Writes JSON lines."""
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def tokenizer_folder(plan: LoadPlan, folder: Path) -> Path:
    """The model's tokenizer as a folder that `transformers` loads without the hub."""
    if plan.tokenizer is None:
        raise ServelabError("this client counts tokens itself and needs the plan's `tokenizer`")
    target = folder / "tokenizer"
    target.mkdir(exist_ok=True)
    shutil.copyfile(plan.tokenizer, target / "tokenizer.json")
    (target / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}', encoding="utf-8")
    return target


def on_monotonic_clock(wall_s: float) -> float:
    """Converts wall-clock time to the monotonic clock; right unless somebody has set the wall clock since."""
    return wall_s - time.time() + time.monotonic()


def _table(plan: LoadPlan, rows: list[Row], columns_of: list[Row]) -> pa.Table:
    """`schemas.RUN_REQUESTS`, in order of the workload."""
    records = [_record(plan, row, columns) for row, columns in zip(rows, columns_of, strict=True)]
    return pa.Table.from_pylist(records, schema=schemas.RUN_REQUESTS)


def _record(plan: LoadPlan, row: Row, columns: Row) -> Row:
    output_tokens, asked = columns.get("output_tokens"), row["output_tokens"]
    error = columns.get("error")
    if error is None and output_tokens is None:
        error = "no_usage: the server sent no usage, so the output length cannot be checked"
    elif error is None and output_tokens != asked:
        error = f"output_length: {output_tokens} tokens instead of {asked}"
    return {
        **columns,
        "round": plan.round,
        "request_index": row["request_index"],
        "phase": "settle" if row["request_index"] < plan.settle_requests else "measured",
        "input_tokens_asked": row["input_tokens"],
        "output_tokens_asked": asked,
        "error": error,
    }
