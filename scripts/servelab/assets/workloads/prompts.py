"""Prompts of one's own: each line of a JSON lines file is a request, and its text is sent as it is."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pydantic import Field, ValidationError

from servelab.assets.workloads import WORKLOADS, Parameters, Workload, open_dataset, table
from servelab.assets.workloads.conversations import Message
from servelab.assets.workloads.random import encoded, warmup_like
from servelab.core.errors import ServelabError
from servelab.core.run_spec import Strict
from servelab.core.yaml_file import describe_validation_error

if TYPE_CHECKING:
    from tokenizers import Tokenizer


class PromptsParameters(Parameters):
    """Default and limit of lengths, in the model's own tokens and without chat template."""

    dataset_sha256: str = Field(description="sha256 of the file; the configuration names it as `dataset` instead.")
    output_tokens: int = Field(gt=0, description="Output length to force where a line has no `max_tokens`, in tokens.")
    max_total_tokens: int | None = Field(
        None, ge=2, description="A longer sum of prompt and output is an error; null is no limit."
    )


class _Line(Strict):
    prompt: str | None = Field(None, min_length=1)
    messages: list[Message] | None = Field(None, min_length=1)
    max_tokens: int | None = Field(None, gt=0, strict=True)
    arrival_s: float | None = Field(None, allow_inf_nan=False)


class Prompts(Workload):
    """The first lines of the file, in its order; the seed only draws the warm-up's prompts."""

    kind = "prompts"
    version = "1"
    Parameters = PromptsParameters
    has_arrival_times = True
    needs_dataset = True

    def longest_tokens(self, parameters: PromptsParameters) -> int | None:
        return parameters.max_total_tokens

    def make(self, parameters: PromptsParameters, tokenizer: Tokenizer, dataset: Path | None) -> pa.Table:
        """See `Workload.make`; the warm-up is text of random tokens, about half as long as the file's prompts."""
        stored, file = open_dataset(dataset, parameters.dataset_sha256)
        rows: list[dict[str, Any]] = []
        for where, line in _lines(file, cut=stored.part_of is not None):
            rows.append(_row(where, line, parameters, tokenizer))
            if (rows[-1]["arrival_s"] is None) != (rows[0]["arrival_s"] is None):
                raise ServelabError(f"{where}: arrival_s: give it in all lines or in none")
            if len(rows) == parameters.num_requests:
                break
        else:
            raise ServelabError(
                f"{stored.name}: has {len(rows):,} prompts, {parameters.num_requests:,} are needed: ask for fewer"
            )
        if rows[0]["arrival_s"] is not None:
            first_s = min(row["arrival_s"] for row in rows)
            for row in rows:
                row["arrival_s"] -= first_s
        return table(rows, warmup_like(rows, tokenizer, parameters.seed))


def _lines(file: Path, *, cut: bool) -> Iterator[tuple[str, bytes]]:
    """Place (file and line number, from 1) and content of each line that is not blank."""
    with file.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if cut and not line.endswith(b"\n"):
                return
            if line.strip():
                yield f"{file}: line {number:,}", line.removeprefix(codecs.BOM_UTF8)


def _row(where: str, content: bytes, parameters: PromptsParameters, tokenizer: Tokenizer) -> dict[str, Any]:
    if content.lstrip()[:1] == b"[":
        raise ServelabError(f'{where}: is a JSON array: write one object a line, `{{"prompt": …}}`')
    try:
        line = _Line.model_validate_json(content)
    except ValidationError as error:
        raise ServelabError(describe_validation_error(error, where, _Line)) from None
    if (line.prompt is None) == (line.messages is None):
        raise ServelabError(f"{where}: give either `prompt` or `messages`")
    if line.messages is not None and parameters.endpoint != "chat":
        raise ServelabError(f"{where}: messages: only `endpoint: chat` takes them; give `prompt`")
    messages = line.messages or [Message(role="user", content=str(line.prompt))]
    if messages[-1].role != "user":
        raise ServelabError(f"{where}: messages: the last one must be of role `user`, since the server answers it")
    tokens = sum(map(len, encoded(tokenizer, [message.content for message in messages])))
    output_tokens = line.max_tokens or parameters.output_tokens
    if parameters.max_total_tokens is not None and tokens + output_tokens > parameters.max_total_tokens:
        raise ServelabError(
            f"{where}: {tokens:,} tokens and {output_tokens:,} of output are more than "
            f"max_total_tokens ({parameters.max_total_tokens:,}): raise it or shorten the line"
        )
    earlier = [message.model_dump() for message in messages[:-1]]
    return {
        "prompt": messages[-1].content,
        "input_tokens": tokens,
        "output_tokens": output_tokens,
        "arrival_s": line.arrival_s,
        "earlier": json.dumps(earlier, ensure_ascii=False) if earlier else None,
    }


WORKLOADS.register(Prompts.kind, Prompts())
