"""Prepares all requests of a round, with their times, before the first is sent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from servelab.core.errors import ServelabError
from servelab.measure.load.arrivals import arrival_times
from servelab.measure.load.plan import LoadPlan
from servelab.metrics.tables import schemas

_PATHS = {"chat": "/v1/chat/completions", "completions": "/v1/completions"}


@dataclass(frozen=True)
class Requests:
    """A plan's requests in order of arrival, as columns."""

    index: npt.NDArray[np.int32]
    """Position in the workload."""
    scheduled_s: list[float]
    input_tokens: npt.NDArray[np.int32]
    output_tokens: npt.NDArray[np.int32]
    messages: list[bytes]
    """Head and body of each HTTP request, as bytes for the socket."""

    def __len__(self) -> int:
        return len(self.messages)


def prepare(plan: LoadPlan) -> Requests:
    """The plan's requests; `ServelabError` if the workload's file does not have them."""
    table = _read(plan)
    index = table["request_index"].to_numpy()
    of_phase = np.array([phase == plan.phase for phase in table["phase"].to_pylist()], dtype=bool)
    rows = np.flatnonzero(of_phase)
    rows = rows[np.argsort(index[rows], kind="stable")][: plan.limit]
    if not len(rows):
        raise ServelabError(f"{plan.requests}: has no request of phase `{plan.phase}`")
    recorded_s = None
    if plan.arrivals == "replay":
        recorded_s = table["arrival_s"].to_numpy().astype(np.float64)[rows]
        if np.isnan(recorded_s).any():
            raise ServelabError(f"{plan.requests}: has no arrival times, which `arrivals: replay` needs")
        order = np.argsort(recorded_s, kind="stable")
        rows, recorded_s = rows[order], recorded_s[order]
    return Requests(
        index=index[rows],
        scheduled_s=arrival_times(plan, len(rows), None if recorded_s is None else recorded_s.tolist()),
        input_tokens=table["input_tokens"].to_numpy()[rows],
        output_tokens=table["output_tokens"].to_numpy()[rows],
        messages=list(_messages(plan, table, rows)),
    )


def _read(plan: LoadPlan) -> pa.Table:
    try:
        # No threads: they cost memory and start-up time, and the process may fork.
        with pq.ParquetFile(plan.requests, pre_buffer=False) as file:
            table = file.read(columns=schemas.WORKLOAD_REQUESTS.names, use_threads=False)
        return table.cast(schemas.WORKLOAD_REQUESTS).combine_chunks()
    except (OSError, pa.ArrowException, ValueError) as error:
        raise ServelabError(f"{plan.requests}: not a workload's requests: {error}") from error


def read_asked(plan: LoadPlan) -> dict[int, dict[str, Any]]:
    """Columns of `schemas.ASKED` of each request by its index; `ServelabError` if the workload has no questions."""
    try:
        columns = ["request_index", "phase", *schemas.ASKED.names]
        rows = pq.read_table(plan.requests, columns=columns).to_pylist()
    except (OSError, pa.ArrowException, ValueError) as error:
        raise ServelabError(f"{plan.requests}: not a workload's questions: {error}") from error
    return {
        row["request_index"]: {name: row[name] for name in schemas.ASKED.names}
        for row in rows
        if row["phase"] == plan.phase
    }


def _messages(plan: LoadPlan, table: pa.Table, rows: npt.NDArray[np.int64]) -> Iterator[bytes]:
    texts = table["prompt"]
    ids = table["prompt_token_ids"].chunk(0)
    values, offsets = ids.values.to_numpy(zero_copy_only=False), ids.offsets.to_numpy()
    output_tokens = table["output_tokens"].to_numpy()
    asked = read_asked(plan) if plan.keep_answers else {}
    index = table["request_index"].to_numpy()
    # One connection per request: a server that drops idle or old connections then fails no request.
    head = (
        f"POST {_PATHS[plan.endpoint]} HTTP/1.1\r\n"
        f"Host: {urlsplit(plan.base_url).netloc}\r\n"
        "Content-Type: application/json\r\n"
        "Accept: text/event-stream\r\n"
        "Connection: close\r\n"
        "Content-Length: "
    ).encode()
    for row in rows.tolist():
        text = texts[row].as_py()
        prompt = values[offsets[row] : offsets[row + 1]] if text is None else text
        content = {
            "model": plan.model,
            **_prompt(plan, prompt),
            "max_tokens": output_tokens[row],
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
            **plan.body,
        }
        if stop := asked.get(int(index[row]), {}).get("stop"):
            content["stop"] = stop
        body = orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)
        yield b"%b%d\r\n\r\n%b" % (head, len(body), body)


def _prompt(plan: LoadPlan, prompt: Any) -> dict[str, Any]:
    if plan.endpoint == "completions":
        return {"prompt": prompt}
    if not isinstance(prompt, str):
        raise ServelabError(f"{plan.requests}: has token ids, which the chat endpoint does not take")
    return {"messages": [{"role": "user", "content": prompt}]}
