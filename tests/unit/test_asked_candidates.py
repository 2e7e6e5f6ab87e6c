"""Who is asked a study's questions, on which server start, and what that reruns."""

import json

import pyarrow.parquet as pq
import pytest
from made_study import demo_study
from tokenizers import Tokenizer, models, pre_tokenizers

from servelab.answers.sets import QUESTIONS
from servelab.assets.datasets import Dataset, fetch_dataset
from servelab.core.errors import ConfigError
from servelab.core.identity import file_sha256
from servelab.engines.adapters import ENGINES
from servelab.measure.load import LoadPlan
from servelab.measure.load.sender import send_load
from servelab.metrics.tables import schemas
from servelab.search.forecast import forecast
from servelab.search.planning import plan_confirm, plan_stage
from servelab.study.configuration import Incumbent, apply, baseline
from servelab.study.plan import ANSWERS
from servelab.study.study import Candidate

STAGES = [
    {"name": "weights", "candidates": [{"model": "q4_0"}, {"model": "q8_0"}]},
    {"name": "sequences", "candidates": [{"options": {"max_num_seqs": 16}}]},
    {"name": "attention", "candidates": [{"arguments": {"--flash-attn": "off"}}]},
]


def plain():
    return demo_study() | {"stages": STAGES}


def asking(**answers):
    return plain() | {"answers": answers}


def stage(project, number):
    return plan_stage(project, project.study.stages[number].name, baseline(project.study))


def ids(plan):
    return [run.run_id for candidate in plan.candidates for run in candidate.runs]


def asked(plan):
    return [len(candidate.answers) for candidate in plan.candidates]


def test_those_that_may_answer_otherwise_are_asked_on_the_start_that_is_timed(make_project):
    project = make_project(asking())
    weights, sequences, attention = (stage(project, number) for number in range(3))
    assert asked(weights) == [2, 1, 1]  # other weights; the baseline's second start shows what chance does
    assert asked(sequences) == [2, 0]  # more sequences should answer the same
    assert asked(attention) == [2, 1]  # another kernel, by its flag
    for plan in (weights, sequences, attention):
        assert [run.run_id for run in plan.baseline_answers] == [run.run_id for run in plan.candidates[0].answers]
        for job in plan.jobs():
            (visit,) = job
            kinds = [run.workload == ANSWERS for run in visit]
            assert kinds == sorted(kinds)  # after the load
            assert len({run.start for run in visit}) == 1
    assert asked(stage(make_project(asking(of="all")), 1)) == [2, 1]


def test_both_sides_of_a_proof_are_asked_on_every_start(make_project):
    project = make_project(asking())
    start = baseline(project.study).configuration
    winner = Incumbent(candidate="w", configuration=apply(start, Candidate(options={"max_num_seqs": 16})))
    plan = plan_confirm(project, winner, 3)
    assert asked(plan) == [3, 3]
    assert plan.baseline_answers == plan.candidates[0].answers


def test_questions_rerun_no_load_and_other_questions_only_themselves(make_project):
    without, few, more = (stage(make_project(content), 0) for content in (plain(), asking(), asking(num_questions=7)))
    assert ids(without) == ids(few) == ids(more)
    assert asked(without) == [0, 0, 0] and not without.baseline_answers
    assert {run.run_id for run in few.baseline_answers}.isdisjoint(run.run_id for run in more.baseline_answers)
    everyone = stage(make_project(asking(of="all")), 1)
    assert {run.run_id for run in stage(make_project(asking()), 1).baseline_answers} <= set(everyone.run_ids())
    assert ids(everyone) == ids(stage(make_project(plain()), 1))
    allowed = stage(make_project(asking(allowed_loss_points=9)), 0)
    assert [run.run_id for run in allowed.baseline_answers] == [run.run_id for run in few.baseline_answers]


@pytest.mark.parametrize(
    ("engine", "setting", "may"),
    [
        ("llama.cpp", "kv_cache_dtype", True),
        ("llama.cpp", "-fa", True),
        ("llama.cpp", "--cache-type-k", True),
        ("llama.cpp", "--threads", False),
        ("vllm", "--quantization", True),
        ("vllm", "--kv-cache-dtype", True),
        ("vllm", "VLLM_ATTENTION_BACKEND", True),
        ("vllm", "max_num_seqs", False),
        ("vllm-ascend", "--dtype", True),
        ("sglang", "--prefill-attention-backend", True),
        ("sglang", "--speculative-algorithm", True),
        ("sglang", "--mem-fraction-static", False),
        ("tensorrt-llm", "extra_llm_api_options.kv_cache_config.dtype", True),
        ("tensorrt-llm", "extra_llm_api_options.stream_interval", False),
        ("mindie", "speculative_tokens", True),
    ],
)
def test_settings_that_may_change_answers(engine, setting, may):
    assert ENGINES.get(engine).changes_answers(setting) is may


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ({"questions": "embeded"}, r"answers\.questions: .*embeded.*embedded"),
        ({"questions": "own"}, r"answers\.dataset: .*`own`"),
        ({"num_questions": 0}, r"answers\.num_questions"),
        ({"endpoints": "chat"}, r"answers\.endpoints"),
    ],
)
def test_a_mistake_is_told_before_anything_starts(make_project, answers, message):
    with pytest.raises(ConfigError, match=message):
        make_project(asking(**answers))


def test_questions_become_requests(make_project):
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    spec = make_project(asking(num_questions=9)).questions_spec()
    parameters = QUESTIONS.Parameters.model_validate(spec.parameters)
    table = QUESTIONS.make(parameters, tokenizer, None)
    assert table.num_rows == 9
    assert set(schemas.WORKLOAD_REQUESTS.names) < set(table.column_names)
    assert all(row["prompt"] and row["expected"] and row["question"] for row in table.to_pylist())
    assert table.equals(QUESTIONS.make(parameters, tokenizer, None))


MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Capital of France?"}]


@pytest.fixture
def own_questions(tmp_path):
    """Makes the requests of one question with these messages, from a file of one's own."""

    def make(*messages):
        file = tmp_path / "own.jsonl"
        file.write_text(json.dumps({"messages": messages, "expected": "Paris"}) + "\n")
        source = {"kind": "path", "path": str(file)}
        described = {"title": "Mine", "file": file.name, "license": "own", "size_bytes": file.stat().st_size}
        dataset = Dataset.model_validate({**described, "sha256": file_sha256(file), "sources": [source]})
        given = {"questions": "own", "set_version": "1", "dataset_sha256": dataset.sha256}
        parameters = QUESTIONS.Parameters(**given, num_requests=1, seed=0, endpoint="chat")
        tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
        tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
        return QUESTIONS.make(parameters, tokenizer, fetch_dataset("mine", dataset, tmp_path / "stored"))

    return make


def test_a_question_of_several_messages_is_sent_with_all_of_them(own_questions, tmp_path, stub, server):
    table = own_questions(*MESSAGES)
    assert table["input_tokens"].to_pylist() == [7]
    requests = tmp_path / "requests.parquet"
    pq.write_table(table, requests)
    plan = {"base_url": server, "endpoint": "chat", "model": "m", "requests": requests}
    send_load(LoadPlan(**plan, keep_answers=True))
    assert [body["messages"] for body in stub.bodies] == [MESSAGES]


def test_the_last_message_of_a_question_asks_it(own_questions):
    with pytest.raises(ConfigError, match="line-1: messages: the last one must be of role `user`"):
        own_questions(*MESSAGES[::-1])


def test_the_forecast_counts_the_questions(make_project, tmp_path):
    without, few = (make_project(content) for content in (plain(), asking()))
    more, fewer = (forecast(project, tmp_path) for project in (few, without))
    assert more.about > fewer.about and more.about_starts == fewer.about_starts
    known = [run for candidate in stage(few, 0).candidates for run in candidate.measured_runs]
    assert more.known == len(known)
