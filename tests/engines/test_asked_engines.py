"""Questions to real servers: answers with log-probabilities, and settings that should leave them as they are."""

from __future__ import annotations

import json

import jobs
import pyarrow.parquet as pq
import pytest
from tokenizers import Tokenizer

from servelab.answers.comparison import CHANGES, Allowed
from servelab.answers.graders import grade
from servelab.answers.judge import judge
from servelab.answers.question import Answer, usable_logprobs
from servelab.answers.workload import QUESTIONS
from servelab.metrics.tables import schemas

COUNT = 16
KEPT = {"vllm": {"prefix_caching": True, "chunked_prefill": True}, "llama.cpp": {"prefix_caching": True}}
"""Options that should leave greedy answers as they are."""


@pytest.fixture
def asked(installed, tmp_path):
    """Requests of a few questions, and the fields of a specification that asks them."""
    model = json.loads(installed.model_json.read_text())
    tokenizer = Tokenizer.from_file(str(installed.model_json.parent / model["tokenizer"] / "tokenizer.json"))
    content = {"num_requests": COUNT, "seed": 1, "endpoint": "completions", "questions": "embedded", "set_version": "1"}
    parameters = QUESTIONS.Parameters.model_validate(content)
    path = tmp_path / "questions.parquet"
    pq.write_table(QUESTIONS.make(parameters, tokenizer, None), path)
    return path, {"kind": "questions", "parameters": content}


def answers(runs, run):
    """What a run answered, and its rows."""
    rows = pq.read_table(jobs.folder(runs, run) / "answers.parquet", schema=schemas.RUN_ANSWERS).to_pylist()
    return [
        Answer(
            row["question"],
            row["text"],
            row["output_tokens"],
            row["finish_reason"],
            grade(row["grader"], row["text"].partition("\n")[0], row["expected"]),
            dict(zip(row["first_tokens"], row["first_logprobs"], strict=True)),
        )
        for row in rows
    ]


def test_caches_leave_greedy_answers_as_they_are_and_log_probabilities_are_printed(installed, asked, tmp_path):
    path, workload = asked
    runs = tmp_path / "runs"

    def run(start, **options):
        spec = installed.spec(
            start=start,
            options={"context_length": 1024, "max_num_seqs": 4, "prefix_caching": False} | options,
            warmup_requests=0,
            max_concurrency=4,
        )
        questions = spec.workload.model_copy(update=workload)
        return installed.run(spec.model_copy(update={"workload": questions, "keeps_answers": True}), path)

    base, again, kept = run("search-0"), run("search-1"), run("search-0", **KEPT[installed.engine.name])
    code, said = jobs.measure(runs, [base], [again], [kept])
    assert code == 0, said
    given = {each: answers(runs, each) for each in (base, again, kept)}
    for found in given.values():
        assert len(found) == COUNT
        for answer in found:
            printed = usable_logprobs(answer)
            assert printed is not None and len(printed) >= 20
            assert all(token.isdigit() for token in printed)
    verdict = judge(
        {"search-0": given[base], "search-1": given[again]}, {"search-0": given[kept]}, Allowed(), expect_same=True
    )
    shown = {figure.name: (figure.value, figure.floor) for figure in verdict.figures}
    print(installed.engine.name, installed.environment.version, shown, verdict.warnings)
    assert verdict.verdict != CHANGES, verdict.why
    assert shown["equal_answers"][0] == 100 or verdict.differences or verdict.warnings  # the difference is named
    assert shown["first_token_kl"][0] < 0.05 and shown["first_token_kl"][1] < 0.05
    statuses = [jobs.status(runs, each) for each in (base, again, kept)]
    assert all(each["startup_s"] > 0 for each in statuses)
    assert all(0 <= each["weights_cached_share"] <= 1 for each in statuses if each["weights_cached_share"] is not None)
