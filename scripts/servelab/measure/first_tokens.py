"""The likeliest first tokens of answers, with their log-probabilities, of a server that prints them.

Each question is sent once more, with one token to generate, after all answers are there: printing them can make an
engine slower, or compute the answer otherwise.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import Any, NamedTuple

import httpx
import orjson
import pyarrow as pa

from servelab.metrics.tables import schemas

MOST_BYTES = 1 << 16
"""Size of an answer; a longer one counts as none."""


class SmallAnswer(NamedTuple):
    """A whole answer."""

    status: int
    content: bytes


def ask(method: str, url: str, timeout_s: float, body: Mapping[str, Any] | None = None) -> SmallAnswer | None:
    """The server's answer; None if it sends none that is whole, of at most `MOST_BYTES`, within the time.

    `body` is sent as JSON.
    """
    return asyncio.run(_ask(method, url, timeout_s, body))


async def _ask(method: str, url: str, timeout_s: float, body: Mapping[str, Any] | None) -> SmallAnswer | None:
    content = bytearray()
    try:  # without a timeout of httpx, which is one of each read: a server that sends a byte at a time never reaches it
        async with (
            asyncio.timeout(timeout_s),
            # reading the certificates takes longer than a small answer
            httpx.AsyncClient(trust_env=False, timeout=None, verify=url.startswith("https:")) as client,  # noqa: S113
            client.stream(method, url, headers={"Accept-Encoding": "identity"}, json=body) as answer,
        ):
            async for part in answer.aiter_raw():
                content += part
                if len(content) > MOST_BYTES:
                    return None
            return SmallAnswer(answer.status_code, bytes(content))
    except (httpx.HTTPError, TimeoutError):
        return None


class FirstTokenQuestions(NamedTuple):
    """Where and how the questions are sent."""

    url: str
    """Of the endpoint."""
    endpoint: str
    """`chat` or `completions`."""
    body: Mapping[str, Any]
    """Fields of every request: the model, and what makes the server print log-probabilities."""
    max_concurrency: int
    until: float
    """When to stop, in seconds of `time.monotonic`."""


def with_first_tokens(answers: pa.Table, asked: FirstTokenQuestions) -> pa.Table:
    """`schemas.RUN_ANSWERS` with the first tokens of each question; null where the server prints none in time."""
    prompts = answers["prompt"].to_pylist()
    found = _first(asked, prompts[:1])
    if found and found[0] is not None:  # a server that has none for one question has none for any
        found += _first(asked, prompts[1:])
    found += [None] * (len(prompts) - len(found))
    columns = {
        "first_tokens": [None if each is None else list(each) for each in found],
        "first_logprobs": [None if each is None else list(each.values()) for each in found],
    }
    for name, values in columns.items():
        field = schemas.RUN_ANSWERS.field(name)
        answers = answers.set_column(answers.schema.get_field_index(name), field, pa.array(values, field.type))
    return answers


def _first(asked: FirstTokenQuestions, prompts: Sequence[str]) -> list[dict[str, float] | None]:
    with ThreadPoolExecutor(asked.max_concurrency) as pool:
        return list(pool.map(lambda prompt: _of(asked, prompt), prompts))


def _of(asked: FirstTokenQuestions, prompt: str) -> dict[str, float] | None:
    left_s = asked.until - time.monotonic()
    if left_s <= 0:
        return None
    sent = {"messages": [{"role": "user", "content": prompt}]} if asked.endpoint == "chat" else {"prompt": prompt}
    answer = ask("POST", asked.url, left_s, {**asked.body, **sent, "max_tokens": 1, "temperature": 0, "stream": False})
    return first_tokens(answer.content) if answer is not None and answer.status == HTTPStatus.OK else None


def first_tokens(content: bytes) -> dict[str, float] | None:
    """The first token's candidates in an answer, id → natural log-probability, the likeliest first; None without any.

    Engines print them as a list of objects (`content`, llama.cpp and every chat endpoint) or as one object
    (`top_logprobs`, vLLM). A token without an id is left out: different tokens may have the same text.
    """
    try:
        # a token may be a part of a character, and its text then no UTF-8
        printed = orjson.loads(content.decode(errors="replace"))["choices"][0]["logprobs"]
        if printed.get("content"):
            pairs = [(_id(each), each["logprob"]) for each in printed["content"][0]["top_logprobs"]]
        else:
            pairs = [(_id({"token": token}), value) for token, value in printed["top_logprobs"][0].items()]
        found = {token: float(value) for token, value in pairs if token is not None and value is not None}
    except (orjson.JSONDecodeError, AttributeError, LookupError, TypeError, ValueError):
        return None
    finite = {token: value for token, value in found.items() if math.isfinite(value)}
    return dict(sorted(finite.items(), key=lambda each: -each[1])) or None


def _id(token: Mapping[str, Any]) -> str | None:
    if isinstance(token.get("id"), int):
        return str(token["id"])
    name, _, number = str(token.get("token")).partition(":")
    return number if name == "token_id" and number.isdigit() else None
