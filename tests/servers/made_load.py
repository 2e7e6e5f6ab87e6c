"""Loads on the stub server, and what they gave."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from servelab.measure.load import LoadPlan
from servelab.measure.load.sender import send_load
from servelab.metrics.tables import schemas

OUTPUT_TOKENS = 6


def write_requests(path: Path, prompts: list, phase: str = "measured", arrival_s: list | None = None) -> Path:
    rows = [
        {
            "request_index": index,
            "phase": phase,
            "prompt": prompt if isinstance(prompt, str) else None,
            "prompt_token_ids": None if isinstance(prompt, str) else prompt,
            "input_tokens": 5,
            "output_tokens": OUTPUT_TOKENS,
            "arrival_s": arrival_s[index] if arrival_s else None,
        }
        for index, prompt in enumerate(prompts)
    ]
    pq.write_table(pa.Table.from_pylist(rows, schema=schemas.WORKLOAD_REQUESTS), path)
    return path


def plan_for(tmp_path: Path, base_url: str, prompts: list, **settings) -> LoadPlan:
    requests = write_requests(tmp_path / "requests.parquet", prompts)
    return LoadPlan(**{"base_url": base_url, "endpoint": "chat", "model": "m", "requests": requests} | settings)


def load(tmp_path: Path, base_url: str, prompts: list, **settings) -> list[dict]:
    requests = write_requests(tmp_path / "requests.parquet", prompts)
    plan = LoadPlan(**{"base_url": base_url, "endpoint": "chat", "model": "m", "requests": requests} | settings)
    records, _, _ = send_load(plan)
    assert records.schema.equals(schemas.RUN_REQUESTS)
    assert records["request_index"].to_pylist() == list(range(len(prompts)))
    return records.to_pylist()
