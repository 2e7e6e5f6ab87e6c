"""Answers that end by themselves, with and without speculative decoding: lengths, and what the drafts gave."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from engines import jobs
from engines.conftest import ARGUMENTS, install

from servelab.metrics.definitions import RunData, summarise
from servelab.metrics.tables import schemas
from servelab.metrics.tables.io import read_table

LONGEST = 96
PROMPTS = [
    "Write the numbers from 1 to 30, separated by commas.",
    "Repeat this sentence four times: the quick brown fox jumps over the lazy dog.",
    "Say hello.",
    "List the days of the week, twice.",
]
DRAFTS = {
    "llama.cpp": ({"speculative_decoding": "ngram-simple"}, {"spec-ngram-simple-size-n": 3}),
    "vllm": ({"speculative_decoding": "ngram", "speculative_tokens": 3}, {}),
}
"""Options and arguments that draft from the text itself, so that no second model is needed."""


def chat(path):
    """Writes the prompts as requests of a workload of text."""
    rows = [
        {"request_index": index, "phase": phase, "prompt": prompt, "prompt_token_ids": None}
        | {"input_tokens": len(prompt) // 4, "output_tokens": LONGEST}
        for phase, prompts in (("warmup", PROMPTS[:1]), ("measured", PROMPTS))
        for index, prompt in enumerate(prompts)
    ]
    pq.write_table(pa.Table.from_pylist(rows, schema=schemas.WORKLOAD_REQUESTS), path)
    return path


def figures(runs, run):
    """Metric → mean, and the lengths of the answers."""
    folder = jobs.folder(runs, run)
    records = read_table(folder / "requests.parquet", schemas.RUN_REQUESTS)
    assert records["error"].isna().all()
    data = RunData(
        pq.read_table(folder / "requests.parquet", schema=schemas.RUN_REQUESTS),
        {},
        pq.read_table(folder / "telemetry.parquet", schema=schemas.TELEMETRY),
    )
    return {row["metric"]: row["mean"] for row in summarise(data) if row["n"]}, records["output_tokens"].tolist()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama.cpp", "vllm"])
def test_answers_end_by_themselves_and_drafts_are_counted(name, tmp_path):
    installed, requests, runs = install(name), chat(tmp_path / "requests.parquet"), tmp_path / "runs"
    made = {}
    for drafted, loads in ((False, (False,)), (True, (False, True))):
        options, arguments = DRAFTS[name] if drafted else ({}, {})
        options = {"context_length": 1024, "max_num_seqs": 4} | options
        spec = installed.spec(options=options, arguments=ARGUMENTS[name] | arguments, max_concurrency=4)
        of = {}
        for forced in loads:
            parameters = {"endpoint": "chat", "seed": 1} | ({} if forced else {"ignore_eos": False})
            workload = spec.workload.model_copy(update={"parameters": parameters})
            of[forced, drafted] = installed.run(spec.model_copy(update={"workload": workload}), requests)
        code, said = jobs.measure(runs, list(of.values()))
        assert code == 0 and {jobs.status(runs, run)["outcome"] for run in of.values()} == {"ok"}, said
        made |= {load: figures(runs, run) for load, run in of.items()}
    print({key: (lengths, {k: v for k, v in means.items() if "draft" in k}) for key, (means, lengths) in made.items()})
    for (forced, drafted), (means, lengths) in made.items():
        assert max(lengths) <= LONGEST
        assert (set(lengths) == {LONGEST}) == forced
        assert means["output_length_tokens"] == pytest.approx(sum(lengths) / len(lengths))
        assert drafted or "draft_acceptance_percent" not in means
    # greedy answers end where they end, whether their tokens were drafted or not
    assert made[False, True][1] == made[False, False][1]
    # a model that may not end repeats itself, and that is drafted; an answer may have nothing to repeat
    means, _ = made[True, True]
    assert 0 < means["draft_acceptance_percent"] <= 100
    assert means["draft_accepted_length_tokens"] > 1
