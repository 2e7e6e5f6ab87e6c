"""Loads for real servers, which every client can carry out: prompts are text."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from engines.conftest import Installed, install

from servelab.measure.load import LoadPlan
from servelab.measure.server import Server
from servelab.metrics.tables import schemas

WORDS = ("time", "year", "people", "way", "day", "man", "thing", "woman", "life", "child", "world", "school", "state")


def request_file(path: Path, count: int, words: int, output_tokens: int) -> Path:
    """`count` prompts of random words, none the start of another."""
    draw = Random(0)
    rows = [
        {
            "request_index": index,
            "phase": "measured",
            "prompt": f"{index} " + " ".join(draw.choices(WORDS, k=words)),
            "prompt_token_ids": None,
            "input_tokens": words + 1,
            "output_tokens": output_tokens,
            "arrival_s": None,
        }
        for index in range(count)
    ]
    pq.write_table(pa.Table.from_pylist(rows, schema=schemas.WORKLOAD_REQUESTS), path)
    return path


def plan_for(installed: Installed, server: Server, requests: Path, **settings: Any) -> LoadPlan:
    """Those requests for a running server."""
    gguf = install("llama.cpp").model_json
    return LoadPlan(
        base_url=server.base_url,
        endpoint="completions",
        model=MODEL,
        requests=requests,
        tokenizer=gguf.parent / json.loads(gguf.read_text())["tokenizer"],
        body=dict(installed.engine.request_body),
        **settings,
    )


MODEL = "SmolLM2-135M-Instruct"
"""As `engines.conftest` serves it."""
