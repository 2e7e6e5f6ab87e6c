"""A made server with slots and a queue: records of the requests of one round, computed, not sent."""

from __future__ import annotations

import heapq

import numpy as np
import pyarrow as pa

from servelab.metrics.tables import schemas
from servelab.metrics.tables.io import RecordArray, record_array

_KINDS = record_array(schemas.RUN_REQUESTS.empty_table()).dtype
_PREFILL = 0.05
"""Share of a request's time until its first token."""


def served(
    gaps: np.ndarray, work_s: np.ndarray, *, rate: float | None = None, in_flight: int | None = None, slots: int = 16
) -> RecordArray:
    """Records of a round at a rate (`gaps` have a mean of 1), or with so many in flight; a slot serves one."""
    count = len(work_s)
    due = np.zeros(count) if rate is None else np.concatenate([[0.0], np.cumsum(gaps)[: count - 1]]) / rate
    sent, begun, end = due.copy(), np.empty(count), np.empty(count)
    free, users = [0.0] * slots, list[float]()
    for index in range(count):
        if in_flight is not None and len(users) >= in_flight:
            sent[index] = max(sent[index], heapq.heappop(users))
        begun[index] = max(heapq.heappop(free), sent[index])
        end[index] = begun[index] + work_s[index]
        heapq.heappush(free, end[index])
        if in_flight is not None:
            heapq.heappush(users, end[index])
    rows = np.empty(count, dtype=_KINDS)
    for name in _KINDS.names or ():
        rows[name] = None if _KINDS[name].kind == "O" else np.nan
    rows["phase"], rows["round"], rows["request_index"] = "measured", 0, np.arange(count)
    rows["scheduled_s"], rows["started_s"], rows["sent_s"] = due, sent, sent
    rows["first_token_s"], rows["last_token_s"], rows["end_s"] = begun + _PREFILL * work_s, end, end
    rows["input_tokens"] = rows["output_tokens"] = rows["chunks"] = 100
    return rows


def as_table(rows: RecordArray) -> pa.Table:
    """Rows of `served` as a table of schemas.RUN_REQUESTS."""
    columns = {}
    for field in schemas.RUN_REQUESTS:
        values = rows[field.name].tolist()
        whole = pa.types.is_integer(field.type)
        given = [None if value != value or value is None else int(value) if whole else value for value in values]
        columns[field.name] = pa.array(given, type=field.type)
    return pa.table(columns, schema=schemas.RUN_REQUESTS)
