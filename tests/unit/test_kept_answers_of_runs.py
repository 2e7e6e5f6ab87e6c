"""Answers that a load client keeps: the whole texts, of answers that end by themselves."""

import pyarrow as pa
import pyarrow.parquet as pq
from servers.made_load import plan_for

from servelab.measure.load.records import MOST_CHARACTERS, read_answer
from servelab.measure.load.sender import send_load
from servelab.metrics.tables import schemas


def asked(tmp_path, base_url, prompts, **settings):
    """A plan whose requests are questions."""
    plan = plan_for(tmp_path, base_url, prompts, keep_answers=True, **settings)
    table = pq.read_table(plan.requests)
    for name, values in {
        "question": [f"q{number}" for number in range(len(prompts))],
        "expected": [str(number) for number in range(len(prompts))],
        "grader": ["exact"] * len(prompts),
        "stop": [["\n"]] * len(prompts),
    }.items():
        table = table.append_column(name, pa.array(values))
    pq.write_table(table, plan.requests)
    return plan


def test_texts_are_kept_and_may_end_before_the_longest_length(stub, tmp_path):
    with stub.running() as base_url:
        sent = send_load(asked(tmp_path, base_url, ["normal", "too short", "reasoning before", "refused"]))
    assert sent.answers.schema.equals(schemas.RUN_ANSWERS)
    rows = sent.answers.to_pylist()
    assert [row["question"] for row in rows] == ["q0", "q1", "q2", "q3"]
    assert [row["expected"] for row in rows] == ["0", "1", "2", "3"]
    assert [row["prompt"] for row in rows] == ["normal", "too short", "reasoning before", "refused"]
    whole, short, reasoned, refused = (row["text"] for row in rows)
    assert whole.startswith(short) and len(short) < len(whole)
    assert reasoned.startswith("hm")
    assert refused is None and rows[3]["error"].startswith("closed_early")
    assert sent.records["error"].to_pylist()[:3] == [None] * 3


def test_the_text_of_an_answer_is_limited_and_ends_at_what_is_no_event():
    event = b'data: {"choices": [{"delta": {"reasoning": "%s", "content": "b"}}]}\n\n'
    answer = read_answer(event % b"a" + b": comment\n\n" + event % b"a" + b"data: {broken\n\n" + event % b"c")
    assert (answer.text, answer.said) == ("abab", "bb")
    assert read_answer(b'data: {"choices": [{"text": "x"}]}\r\n\r\n' * 2).said == "xx"
    assert len(read_answer((event % (b"x" * 1000)) * 100).text) == MOST_CHARACTERS


def test_a_question_is_sent_greedily_with_its_stops(stub, tmp_path):
    with stub.running() as base_url:
        send_load(asked(tmp_path, base_url, ["normal"], body={"seed": 1}))
        send_load(plan_for(tmp_path, base_url, ["normal"]))
    question, load = stub.bodies
    assert (question["temperature"], question["seed"], question["stop"]) == (0, 1, ["\n"])
    assert "ignore_eos" not in question and "stop" not in load
