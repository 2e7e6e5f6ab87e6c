"""Questions as the requests of a run: what candidates are asked beside their load."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pydantic import Field

from servelab.answers.question import Question
from servelab.answers.sets import QUESTION_SETS
from servelab.assets.workloads import Parameters, Workload, open_dataset, table
from servelab.core.errors import ConfigError
from servelab.metrics.tables.schemas import ASKED

if TYPE_CHECKING:
    from tokenizers import Tokenizer


class QuestionsParameters(Parameters):
    """Which questions; the seed draws them."""

    questions: str = Field(description="Name of the set.")
    set_version: str = Field(description="Its version.")
    dataset_sha256: str | None = Field(None, description="sha256 of the set's file; null for a set without one.")


class Questions(Workload):
    """A kind of workload that is not registered, since no study lists it: questions are no load."""

    kind = "questions"
    version = "2"
    Parameters = QuestionsParameters

    def make(self, parameters: QuestionsParameters, tokenizer: Tokenizer, dataset: Path | None) -> pa.Table:
        """See `Workload.make`; the rows have the columns of `schemas.ASKED` besides, and none is a warm-up."""
        file = None
        if parameters.dataset_sha256 is not None:
            _, file = open_dataset(dataset, parameters.dataset_sha256)
        asked = QUESTION_SETS.get(parameters.questions).questions(file, parameters.num_requests, parameters.seed)
        texts = [_texts(each, parameters.endpoint) for each in asked]
        rows: list[dict[str, Any]] = [
            {
                "prompt": said[-1],
                "input_tokens": sum(len(tokenizer.encode(text, add_special_tokens=False).ids) for text in said),
                "output_tokens": each.max_tokens,
                "earlier": _earlier(each),
            }
            for said, each in zip(texts, asked, strict=True)
        ]
        found = table(rows, [])
        columns: dict[str, list[Any]] = {
            "question": [each.id for each in asked],
            "expected": [each.expected for each in asked],
            "grader": [each.grader for each in asked],
            "stop": [list(each.stop) for each in asked],
        }
        for name, values in columns.items():
            found = found.append_column(ASKED.field(name), pa.array(values, ASKED.field(name).type))
        return found


def _texts(question: Question, endpoint: str) -> list[str]:
    """The texts that are sent, the prompt last; `ConfigError` for a question that the endpoint does not take."""
    if (endpoint == "chat") != (question.messages is not None):
        given = "messages" if question.messages is not None else "a prompt"
        other = "chat" if endpoint == "completions" else "completions"
        raise ConfigError(f"question {question.id} has {given}, but answers.endpoint is {endpoint}: set it to {other}")
    if question.messages is None:
        return [str(question.prompt)]
    if question.messages[-1]["role"] != "user":
        raise ConfigError(f"question {question.id}: messages: the last one must be of role `user`: it is what is asked")
    return [message["content"] for message in question.messages]


def _earlier(question: Question) -> str | None:
    """The messages before the one that asks, as `schemas.TURNS` has them."""
    before = [dict(message) for message in (question.messages or ())[:-1]]
    return json.dumps(before, ensure_ascii=False) if before else None


QUESTIONS: Workload = Questions()
