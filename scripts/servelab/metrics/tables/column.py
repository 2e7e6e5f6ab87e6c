"""How the columns of a table are declared: name, type and meaning."""

from __future__ import annotations

import pyarrow as pa


def table_schema(*columns: tuple[str, pa.DataType, str]) -> pa.Schema:
    """The schema of these columns, each with its meaning as its description."""
    return pa.schema([pa.field(name, kind, metadata={"description": text}) for name, kind, text in columns])


_ASKED = (
    ("question", pa.string(), "Name of the question."),
    ("prompt", pa.string(), "What was asked."),
    ("expected", pa.string(), "The right answer; null if the question is not graded."),
    ("grader", pa.string(), "How an answer is compared with it."),
    ("stop", pa.list_(pa.string()), "Texts that end the answer; what is from there on does not count."),
)
ASKED = table_schema(*_ASKED)
"""What the requests of a workload of questions have besides; `prompt` is a column of every workload."""

RUN_ANSWERS = table_schema(
    ("request_index", pa.int32(), "Position of the question among those asked."),
    *_ASKED,
    ("text", pa.string(), "The answer, at most its first 65,536 characters; null if the request failed."),
    ("output_tokens", pa.int32(), "Its tokens, as the server counted them."),
    ("finish_reason", pa.string(), "Why it ended: `stop` by itself, `length` at the longest length asked for."),
    ("error", pa.string(), "Why the request failed; null if it did not."),
    ("first_tokens", pa.list_(pa.string()), "Ids of the likeliest first tokens; null if the server printed none."),
    ("first_logprobs", pa.list_(pa.float64()), "Their natural log-probabilities."),
)

ANSWER_COLUMNS: tuple[tuple[str, pa.DataType, str], ...] = (
    (
        "answers",
        pa.string(),
        "What its answers are against the baseline's: `same`, `changes answers`, `cannot tell` or "
        "`not measured`; null if it was asked nothing, of the baseline, and on workloads that do not decide.",
    ),
    ("answers_note", pa.string(), "The figures behind that, in words."),
    ("answers_found", pa.string(), "The same figures, as JSON (`answers` of recommended.json)."),
    ("answers_run_ids", pa.list_(pa.string()), "Its runs that were asked questions, one for each server start."),
)
"""Columns of the stage table."""

STAGE_ANSWERS = table_schema(
    ("study", pa.string(), "Study."),
    ("stage", pa.string(), "Stage."),
    ("position", pa.int32(), "Order of the candidate in the stage."),
    ("candidate", pa.string(), "Label of the candidate; in the last stage, `baseline` or `winner`."),
    ("start", pa.string(), "Label of its server start, such as `search-0`."),
    ("run_id", pa.string(), "Run whose answers these are."),
    ("baseline_run_id", pa.string(), "Run of the baseline that they are compared with."),
    ("question", pa.string(), "Name of the question."),
    ("prompt", pa.string(), "What was asked."),
    ("expected", pa.string(), "The right answer; null if the question is not graded."),
    ("baseline_text", pa.string(), "The baseline's answer; null if its request failed."),
    ("text", pa.string(), "The candidate's answer; null if its request failed."),
    ("baseline_right", pa.bool_(), "Whether the baseline's is right; null if the question is not graded."),
    ("right", pa.bool_(), "Whether the candidate's is right."),
    ("edit_share", pa.float64(), "Edits from the one text to the other, per character of the longer one: 0 to 1."),
)
