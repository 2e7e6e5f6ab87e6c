"""Sends rounds of load to a server with Servelab's load client, and finds out first what the server accepts."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from servelab.assets.workloads import generator, table
from servelab.core.credentials import without_keys
from servelab.core.errors import Outage, ServelabError
from servelab.core.processes import Supervised, last_text
from servelab.engines.endpoint import Address
from servelab.measure.clients import CLIENTS
from servelab.measure.inputs import CLIENT_SLACK_S
from servelab.measure.load import LoadPlan, LoadResult
from servelab.measure.outcome import failed_requests
from servelab.measure.session import warmup_plan
from servelab.metrics.tables import schemas

_WORDS_OF_PROMPTS = Path(__file__).with_name("words.txt").read_text(encoding="utf-8").split()


def texts(seed: int, lengths: Sequence[int]) -> list[str]:
    """Texts of so many words. Each begins with words of its own, so that none finds its beginning in a cache."""
    draw = generator(seed)
    return [" ".join(draw.choices(_WORDS_OF_PROMPTS, k=max(4, length))) for length in lengths]


def write_requests(file: Path, measured: Sequence[str], warmup: Sequence[str], output_tokens: int) -> None:
    """Writes the requests as the load client reads them, with `schemas.ASKED` for answers of any length.

    Their lengths in tokens are not known, so the column has 0.
    """
    rows = [
        [{"prompt": text, "input_tokens": 0, "output_tokens": output_tokens} for text in phase]
        for phase in (measured, warmup)
    ]
    requests = table(rows[0], rows[1])
    for field in schemas.ASKED:
        if field.name not in requests.column_names:
            requests = requests.append_column(field, pa.nulls(len(requests), field.type))
    pq.write_table(requests, file)


CLIENT = "servelab"
_IGNORE_END: dict[str, Any] = {"ignore_eos": True}
"""Request field by which vLLM, SGLang and llama.cpp answer with exactly the requested length."""
_OTHER_LENGTH: dict[str, Any] = {"max_completion_tokens": 0}
"""Request field by which the client sends the length under this name."""
_WORDS = (60, 260)
"""Words of the two prompts whose token counts give the tokens of a word and of the template."""


@dataclass(frozen=True)
class Point:
    """One load."""

    max_concurrency: int | None
    """Requests in flight of a closed loop; None for a rate."""
    request_rate: float | None
    requests: int
    """Requests of a visit."""

    @property
    def name(self) -> str:
        """`16 at once`, `2.5 per second`."""
        return f"{self.max_concurrency} at once" if self.max_concurrency else f"{self.request_rate:g} per second"


@dataclass(frozen=True)
class Accepted:
    """Requests that the server accepts, and its token counts."""

    body: dict[str, Any]
    """Further fields of requests."""
    is_length_forced: bool
    """Whether every answer is as long as asked for; else it may be shorter."""
    tokens_per_word: float
    template_tokens: float

    def words(self, input_tokens: int) -> int:
        """Words of a prompt that has about so many tokens, template included."""
        return max(4, round((input_tokens - self.template_tokens) / self.tokens_per_word))


@dataclass(frozen=True)
class Target:
    """How requests reach the server."""

    address: Address
    model: str
    endpoint: str
    output_tokens: int
    timeout_s: float
    tokenizer: Path | None = None
    """Counts tokens where the server sends no usage."""


def find_accepted(target: Target, seed: int) -> Accepted:
    """Sends two requests at a time, with and without a forced length, with either name of the length.

    `ServelabError` if the server refuses all.
    """
    prompts, failures = texts(seed, _WORDS), ""
    for body in (_IGNORE_END, {}, _IGNORE_END | _OTHER_LENGTH, _OTHER_LENGTH):
        records = _send(target, prompts, body=body, may_be_shorter=True).records
        if (found := failed_requests(records)) is None:
            break
        failures = failures if body and failures else found
    else:
        hint = "; give the model's tokenizer.json with --tokenizer" if "no_usage" in failures else ""
        raise ServelabError(f"the server does not answer as OpenAI's API defines it: {failures}{hint}")
    inputs, outputs = records["input_tokens"].to_pylist(), records["output_tokens"].to_pylist()
    per_word = (inputs[1] - inputs[0]) / (_WORDS[1] - _WORDS[0])
    if per_word <= 0:
        raise ServelabError(
            f"the server counts {inputs[0]} and {inputs[1]} tokens in {_WORDS[0]} and {_WORDS[1]} words"
        )
    is_forced = "ignore_eos" in body and all(each == target.output_tokens for each in outputs)
    body = body if is_forced else {name: value for name, value in body.items() if name != "ignore_eos"}
    return Accepted(body, is_forced, per_word, max(0.0, inputs[0] - per_word * _WORDS[0]))


def send_point(
    target: Target, accepted: Accepted, point: Point, *, visit: int, seed: int, input_tokens: int, warmup: int
) -> LoadResult:
    """Records of one visit of a load, after its warm-up; `ServelabError` if no request succeeds. Raises `Outage`."""
    prompts = texts(seed, [accepted.words(input_tokens)] * (point.requests + warmup))
    result = _send(
        target,
        prompts[: point.requests],
        warmup=prompts[point.requests :],
        body=accepted.body,
        may_be_shorter=not accepted.is_length_forced,
        round=visit,
        request_rate=point.request_rate or "inf",
        max_concurrency=point.max_concurrency,
        seed=seed,
    )
    if result.records["error"].null_count == 0:
        raise ServelabError(f"{point.name}: {failed_requests(result.records)}")
    return LoadResult(_plain(result.records, visit * point.requests, accepted), result.stats)


def _plain(records: pa.Table, first: int, accepted: Accepted) -> pa.Table:
    """The records with each request under a number of its own, and without lengths that nobody asked for."""
    replaced = {
        "request_index": pc.add(records["request_index"], pa.scalar(first, pa.int32())),
        "input_tokens_asked": pa.nulls(len(records), pa.int32()),
    }
    if not accepted.is_length_forced:
        replaced["output_tokens_asked"] = pa.nulls(len(records), pa.int32())
    for name, values in replaced.items():
        position = records.column_names.index(name)
        records = records.set_column(position, records.schema.field(name), values)
    return records


def _send(
    target: Target,
    prompts: list[str],
    *,
    warmup: list[str] | None = None,
    body: dict[str, Any],
    may_be_shorter: bool,
    **load: Any,
) -> LoadResult:
    with TemporaryDirectory(prefix="servelab-bench-") as name:
        folder = Path(name)
        write_requests(folder / "requests.parquet", prompts, warmup or [], target.output_tokens)
        plan = LoadPlan(
            base_url=target.address.url,
            api_key_env=target.address.key_variable,
            header_env=dict(target.address.header_variables),
            insecure=target.address.insecure,
            tokenizer=target.tokenizer,
            endpoint=target.endpoint,
            model=target.model,
            requests=folder / "requests.parquet",
            timeout_s=target.timeout_s,
            request_timeout_s=target.timeout_s,
            keep_answers=may_be_shorter,
            body=body,
            **load,
        )
        if warmup:
            _run(warmup_plan(plan, len(warmup)), target, folder / "warmup")
        return _run(plan, target, folder / "load")


def _run(plan: LoadPlan, target: Target, folder: Path) -> LoadResult:
    """Runs the client once."""
    client, log = CLIENTS.get(CLIENT), folder.with_suffix(".log")
    folder.mkdir()
    command = client.command(plan, folder, Path(sys.executable))
    running = Supervised(command, environment=dict(os.environ), log=log, grace_s=2.0)
    try:
        code = running.wait(plan.timeout_s + CLIENT_SLACK_S)
    finally:
        running.stop()
    if code:
        said = without_keys(last_text(log, 500), target.address.headers.values())
        raise Outage(f"the load client failed: {said or f'exit code {code}'}")
    if code is None:
        raise Outage(f"the load client did not end within {CLIENT_SLACK_S:g} s after the time limit")
    return client.read(plan, folder)
