"""Questions as the requests of a run: what candidates are asked beside their load."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from pydantic import Field
from tokenizers import Tokenizer

from servelab.answers.question import Question
from servelab.answers.sets import QUESTION_SETS
from servelab.assets.workloads import Parameters, Workload, open_dataset, table
from servelab.core.errors import ConfigError
from servelab.metrics.tables.schemas import ASKED


class QuestionsParameters(Parameters):
    """Which questions; the seed draws them."""

    questions: str = Field(description="Name of the set.")
    set_version: str = Field(description="Its version.")
    dataset_sha256: str | None = Field(None, description="sha256 of the set's file; null for a set without one.")


class Questions:
    """A kind of workload that is not registered, since no study lists it: questions are no load."""

    kind = "questions"
    version = "2"
    Parameters = QuestionsParameters
    sends_token_ids = False
    sends_turns = False
    has_arrival_times = False
    needs_dataset = False

    def longest_tokens(self, parameters: QuestionsParameters) -> int | None:
        """See `Workload.longest_tokens`; the length of a question is not known before it is read."""
        return None

    def shared_input(self, parameters: Mapping[str, Any]) -> float | None:
        """See `Workload.shared_input`."""
        return None

    def make(self, parameters: QuestionsParameters, tokenizer: Tokenizer, dataset: Path | None) -> pa.Table:
        """See `Workload.make`; the rows have the columns of `schemas.ASKED` besides, and none is a warm-up."""
        file = None
        if parameters.dataset_sha256 is not None:
            _, file = open_dataset(dataset, parameters.dataset_sha256)
        asked = QUESTION_SETS.get(parameters.questions).questions(file, parameters.num_requests, parameters.seed)
        prompts = [_prompt(each, parameters.endpoint) for each in asked]
        rows: list[dict[str, Any]] = [
            {
                "prompt": prompt,
                "input_tokens": len(tokenizer.encode(prompt, add_special_tokens=False).ids),
                "output_tokens": each.max_tokens,
            }
            for prompt, each in zip(prompts, asked, strict=True)
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


def _prompt(question: Question, endpoint: str) -> str:
    """The text that is sent; `ConfigError` for a question that the endpoint does not take."""
    if (endpoint == "chat") != (question.messages is not None):
        given = "messages" if question.messages is not None else "a prompt"
        other = "chat" if endpoint == "completions" else "completions"
        raise ConfigError(f"question {question.id} has {given}, but answers.endpoint is {endpoint}: set it to {other}")
    if question.messages is None:
        return str(question.prompt)
    if len(question.messages) > 1 or question.messages[0]["role"] != "user":
        raise ConfigError(f"question {question.id}: messages: only one message, of role `user`, can be sent")
    return question.messages[0]["content"]


QUESTIONS: Workload = Questions()
