"""Clients as one writes them by hand with httpx or aiohttp, for comparison: they carry out a `LoadPlan` like any other.

    python plain_clients.py aiohttp --load load.json --output FOLDER

Every request is sent at once, each event is parsed and stamped as it is taken from the library, and the records are
written as `schemas.RUN_REQUESTS`.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import aiohttp
import httpx
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from servelab.measure.load import LoadPlan
from servelab.metrics.tables import schemas

Lines = AsyncIterator[bytes | str]
Post = Callable[[bytes], Lines]
HEADERS = {"Content-Type": "application/json"}


async def with_aiohttp(url: str, bodies: list[bytes], origin: float) -> list[dict]:
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None)) as session:

        async def post(body: bytes) -> Lines:
            async with session.post(url, data=body, headers=HEADERS) as response:
                async for line in response.content:
                    yield line

        return await asyncio.gather(*(request(post, body, orjson.loads, origin) for body in bodies))


async def with_httpx(url: str, bodies: list[bytes], origin: float) -> list[dict]:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx.AsyncClient(limits=limits, timeout=None) as session:

        async def post(body: bytes) -> Lines:
            async with session.stream("POST", url, content=body, headers=HEADERS) as response:
                async for line in response.aiter_lines():
                    yield line

        return await asyncio.gather(*(request(post, body, json.loads, origin) for body in bodies))


async def request(post: Post, body: bytes, loads: Callable[[bytes | str], dict], origin: float) -> dict:
    sent = time.monotonic()
    times: list[float] = []
    usage: dict = {}
    async for line in post(body):
        line = line.strip()
        data = line[6:]
        if not line or data in (b"[DONE]", "[DONE]"):
            continue
        event = loads(data)
        if event["choices"]:
            times.append(time.monotonic())
        usage = event.get("usage") or usage
    return {
        "sent_s": sent - origin,
        "first_token_s": times[0] - origin,
        "last_token_s": times[-1] - origin,
        "end_s": time.monotonic() - origin,
        "input_tokens": usage["prompt_tokens"],
        "output_tokens": usage["completion_tokens"],
        "chunks": len(times),
        "chunk_gaps_ms": [1000 * (after - before) for before, after in itertools.pairwise(times)],
    }


CLIENTS = {"aiohttp": with_aiohttp, "httpx": with_httpx}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("client", choices=CLIENTS)
    parser.add_argument("--load", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    plan = LoadPlan.model_validate_json(arguments.load.read_bytes())
    asked = pq.read_table(plan.requests).to_pylist()
    bodies = [
        orjson.dumps(
            {
                "model": plan.model,
                "prompt": row["prompt"],
                "max_tokens": row["output_tokens"],
                "stream": True,
                "stream_options": {"include_usage": True},
            }
        )
        for row in asked
    ]
    send = CLIENTS[arguments.client]
    records = asyncio.run(send(f"{plan.base_url}/v1/completions", bodies, time.monotonic()))
    common = {"round": 0, "phase": "measured", "scheduled_s": 0.0, "http_status": 200}
    rows = [
        {
            **common,
            **record,
            "request_index": row["request_index"],
            "output_tokens_asked": row["output_tokens"],
            "input_tokens_asked": row["input_tokens"],
        }
        for row, record in zip(asked, records, strict=True)
    ]
    pq.write_table(pa.Table.from_pylist(rows, schema=schemas.RUN_REQUESTS), arguments.output / "requests.parquet")


if __name__ == "__main__":
    main()
