"""Questions to real servers: answers with log-probabilities, and settings that should leave them as they are."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import pyarrow.parquet as pq
import pytest
from damaged_weights import damage
from engines import jobs
from engines.conftest import ARGUMENTS, install
from tokenizers import Tokenizer

from servelab.answers.comparison import CHANGES
from servelab.answers.judge import judge
from servelab.answers.question import Answer, grade
from servelab.answers.sets import QUESTIONS
from servelab.metrics.tables import schemas

COUNT = 16
ALLOWED_POINTS = 2.0
WITHOUT = {"vllm": {"prefix_caching": False, "chunked_prefill": False}, "llama.cpp": {"prefix_caching": False}}
"""Options of the baseline, by engine."""
KEPT = {
    "vllm": {
        "prefix caching": {"options": {"prefix_caching": True}},
        "chunked prefill": {"options": {"chunked_prefill": True}},
        "compiled instead of eager": {
            "arguments": {k: v for k, v in ARGUMENTS["vllm"].items() if k != "enforce-eager"}
        },
        "speculative decoding": {"options": {"speculative_decoding": "ngram", "speculative_tokens": 3}},
    },
    "llama.cpp": {"prefix caching": {"options": {"prefix_caching": True}}},
}
"""Changes that should leave greedy answers as they are, by engine and name."""
TRIALS, QUESTIONS_OF_A_TRIAL = 20, 32


def questions(installed, path, count, seed=1):
    """Writes the requests of so many questions, and returns the workload that they are."""
    model = json.loads(installed.model_json.read_text())
    tokenizer = Tokenizer.from_file(str(installed.model_json.parent / model["tokenizer"]))
    content = {"endpoint": "completions", "questions": "embedded", "set_version": "1"}
    content |= {"num_requests": count, "seed": seed}
    pq.write_table(QUESTIONS.make(QUESTIONS.Parameters.model_validate(content), tokenizer, None), path)
    return {"kind": "questions", "parameters": content}


def asking(installed, path, workload, start, arguments=None, **options):
    """A run that asks the questions of `path`; with the arguments of each start, if none are given."""
    options = {"context_length": 1024, "max_num_seqs": 4} | options
    spec = installed.spec(start=start, options=options, arguments=arguments, warmup_requests=0, max_concurrency=4)
    asked = spec.workload.model_copy(update=workload)
    return installed.run(spec.model_copy(update={"workload": asked, "keeps_answers": True}), path)


def answers(runs, run):
    """What a run answered; a run whose requests failed fails here."""
    rows = pq.read_table(jobs.folder(runs, run) / "answers.parquet", schema=schemas.RUN_ANSWERS).to_pylist()
    return [
        Answer(
            row["question"],
            row["text"],
            row["output_tokens"],
            row["finish_reason"],
            grade(row["grader"], row["text"].partition("\n")[0], row["expected"]),
        )
        for row in rows
    ]


@pytest.mark.slow
@pytest.mark.parametrize("installed", ["llama.cpp", pytest.param("vllm", marks=pytest.mark.slow)], indirect=True)
def test_greedy_answers_stay_as_they_are_or_the_difference_is_named(installed, tmp_path):
    path, runs = tmp_path / "questions.parquet", tmp_path / "runs"
    workload, engine = questions(installed, path, COUNT), installed.engine

    def run(start, options=None, arguments=None):
        settings = WITHOUT[engine.name] | (options or {})
        return asking(installed, path, workload, start, arguments, **settings)

    base, again = run("search-0"), run("search-1")
    kept = {name: run("search-0", **changes) for name, changes in KEPT[engine.name].items()}
    code, said = jobs.measure(runs, [base], [again], *([each] for each in kept.values()))
    assert code == 0, said
    of_base, of_again = (answers(runs, each) for each in (base, again))
    of_kept = {name: answers(runs, each) for name, each in kept.items()}
    for found in (of_base, of_again, *of_kept.values()):
        assert len(found) == COUNT
    for name, found in of_kept.items():
        verdict = judge({"search-0": of_base, "search-1": of_again}, {"search-0": found}, ALLOWED_POINTS)
        print(engine.name, installed.environment.version, name, verdict.why)
        assert verdict.verdict != CHANGES, (name, verdict.why)
    statuses = [jobs.status(runs, each) for each in (base, again, *kept.values())]
    assert all(each["startup_s"] > 0 for each in statuses)


@pytest.mark.slow
def test_damaged_weights_are_found_in_every_trial_and_a_second_start_is_never_called_different(tmp_path):
    """Each trial has questions of its own, and fresh server starts of all three."""
    sound = install("llama.cpp")
    model = json.loads(sound.model_json.read_text())
    folder = tmp_path / "damaged"
    shutil.copytree(sound.model_json.parent, folder)
    damage(folder / model["path"])
    source = {"kind": "path", "path": str(folder / model["path"]), "revision": "damaged"}
    (folder / "model.json").write_text(json.dumps(model | {"source": source}))
    broken = replace(sound, model_json=folder / "model.json")
    found = []
    for trial in range(TRIALS):
        path, runs = tmp_path / f"questions-{trial}.parquet", tmp_path / f"runs-{trial}"
        workload = questions(sound, path, QUESTIONS_OF_A_TRIAL, seed=trial)
        base, again = (asking(sound, path, workload, f"search-{start}") for start in range(2))
        other = asking(broken, path, workload, "search-0")
        code, said = jobs.measure(runs, [base], [again], [other])
        assert code == 0, said
        of_baseline = {"search-0": answers(runs, base)}
        found.append([judge(of_baseline, {"c": answers(runs, each)}, ALLOWED_POINTS) for each in (other, again)])
        print(trial, [(each.verdict, each.why) for each in found[-1]])
    assert [damaged.verdict for damaged, _ in found] == [CHANGES] * TRIALS
    assert CHANGES not in [second.verdict for _, second in found]
