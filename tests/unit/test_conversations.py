"""Conversations: what is sent in each turn, when, and what happens to the rest where a turn fails."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_own_prompts import made as made_of
from test_own_prompts import tokenizer

from servelab.core.errors import ServelabError
from servelab.measure.load import LoadPlan
from servelab.measure.load.sender import send_load
from servelab.metrics.tables import schemas

__all__ = ["tokenizer"]


FIRST_ANSWER, SECOND_ANSWER = 3, 5


def says(role: str, content: str, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


def talk(topic: str, *more: dict[str, Any]) -> dict[str, Any]:
    """A line of two turns, whose answers have 3 and 5 tokens of a byte each."""
    return {
        "messages": [
            *more,
            says("user", f"normal {topic}"),
            says("assistant", "abc"),
            says("user", f"and {topic}?"),
            says("assistant", "fghij"),
        ]
    }


def made(folder: Path, tokenizer, records: list[dict[str, Any]] | str, **changes: Any) -> pa.Table:
    """The requests for a file of these records."""
    content = records if isinstance(records, str) else "".join(json.dumps(record) + "\n" for record in records)
    return made_of(folder, tokenizer, content, "conversations", **{"num_requests": 4, **changes})


def sent(folder: Path, table: pa.Table, server: str, **settings: Any) -> pa.Table:
    pq.write_table(table, folder / "requests.parquet")
    plan = {"base_url": server, "endpoint": "chat", "model": "m", "requests": folder / "requests.parquet"}
    records, _, _ = send_load(LoadPlan(**plan, **settings))
    assert records.schema.equals(schemas.RUN_REQUESTS)
    return records


TALKS = [talk("tea", says("system", "Be brief.")), talk("rain"), talk("salt")]


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("limit", [None, 2])
def test_a_later_turn_holds_what_was_said_and_the_servers_own_answer(
    tmp_path, tokenizer, stub, server, processes, limit
):
    table = made(tmp_path, tokenizer, TALKS, num_requests=4)
    records = sent(tmp_path, table, server, processes=processes, max_concurrency=limit).to_pylist()
    assert [record["error"] for record in records] == [None] * 4
    assert [record["turn"] for record in records] == [0, 1, 0, 1]
    rows = table.to_pylist()
    bodies = {body["messages"][-1]["content"]: body for body in stub.bodies}
    for first, later in ((0, 1), (2, 3)):
        opening = [*json.loads(rows[first]["earlier"] or "[]"), says("user", rows[first]["prompt"])]
        assert bodies[rows[first]["prompt"]]["messages"] == opening
        answer = says("assistant", "a " * FIRST_ANSWER)  # the server's, not the file's
        assert bodies[rows[later]["prompt"]]["messages"] == [*opening, answer, says("user", rows[later]["prompt"])]
        assert bodies[rows[later]["prompt"]]["max_tokens"] == SECOND_ANSWER
        assert records[later]["scheduled_s"] >= records[first]["end_s"] - 0.01
        assert records[later]["sent_s"] >= records[later]["scheduled_s"]


def test_a_turn_waits_for_its_time_to_think(tmp_path, tokenizer, server):
    talks = [talk("tea"), talk("rain")]
    talks[0]["messages"][2]["think_s"] = 0.4
    records = sent(tmp_path, made(tmp_path, tokenizer, [*talks, talk("salt")], think_s=0.2), server).to_pylist()
    rows = made(tmp_path, tokenizer, [*talks, talk("salt")], think_s=0.2).to_pylist()
    for first, later in ((0, 1), (2, 3)):
        pause = records[later]["scheduled_s"] - records[first]["end_s"]
        assert -0.001 <= pause - rows[later]["think_s"] < 5  # a busy client sees the end of an answer late
        assert rows[later]["think_s"] == (0.4 if "tea" in rows[later]["prompt"] else 0.2)


@pytest.mark.parametrize("fault", ["status 500", "an early close"])
def test_what_follows_a_failed_turn_is_not_sent_and_counts_as_failed(tmp_path, tokenizer, stub, server, fault):
    bad = talk("tea")
    bad["messages"][0]["content"] = f"{fault} tea"
    table = made(tmp_path, tokenizer, [bad, talk("rain"), talk("salt")])
    while not any(fault in prompt for prompt in table["prompt"].to_pylist()[:4]):
        bad["messages"][0]["content"] += "!"
        table = made(tmp_path, tokenizer, [bad, talk("rain"), talk("salt")], seed=len(bad["messages"][0]["content"]))
    records = sent(tmp_path, table, server).to_pylist()
    failed = [record for record in records if record["error"]]
    assert [record["turn"] for record in failed] == [0, 1]
    assert failed[1]["error"] == "turn_before: the turn before failed"
    assert sum(fault in body["messages"][0]["content"] for body in stub.bodies) == 1


def test_a_null_of_a_message_is_no_value(tmp_path, tokenizer):
    nulls = [{"messages": [{**each, "name": None} for each in record["messages"]]} for record in TALKS]
    assert made(tmp_path, tokenizer, nulls).equals(made(tmp_path, tokenizer, TALKS))


def test_sharegpt_turns_are_read_up_to_what_no_chat_takes(tmp_path, tokenizer):
    def turns(*said: tuple[str, str]) -> dict[str, Any]:
        return {"id": "x", "conversations": [{"from": speaker, "value": text} for speaker, text in said]}

    records = [
        turns(("human", "normal one"), ("gpt", "abc"), ("human", "more"), ("gpt", "de"), ("bing", "odd")),
        turns(("human", "normal two"), ("gpt", "abc"), ("robot", "?"), ("gpt", "de")),
        turns(("gpt", "normal three"), ("human", "abc"), ("gpt", "de")),
        turns(("system", "S"), ("human", "normal four"), ("gpt", "abc"), ("human", "more"), ("gpt", "")),
        turns(("human", "normal five"), ("gpt", "abc"), ("human", "five more"), ("gpt", "de")),
    ]
    rows = made(tmp_path, tokenizer, json.dumps(records), num_requests=4, min_turns=2).to_pylist()
    used = {row["prompt"] for row in rows[:4]}
    assert used == {"normal one", "more", "normal five", "five more"}
    rows = made(tmp_path, tokenizer, json.dumps(records), num_requests=6, min_turns=1).to_pylist()
    assert {row["prompt"] for row in rows[:6]} == used | {"normal two", "normal four"}


@pytest.mark.parametrize(
    ("records", "changes", "message"),
    [
        ([{"messages": [says("assistant", "a"), says("user", "b")]}], {}, "record 1: messages: write a system message"),
        ([{"messages": [says("robot", "a")]}], {}, r"record 1: messages.0.role"),
        ([{"messages": [says("user", "a", think_s=-1)]}], {}, r"record 1: messages.0.think_s"),
        ([{"message": []}], {}, "record 1: has none of conversations, messages"),
        (TALKS, {"num_requests": 40}, "; 6 turns pass the filters, 40 are needed: ask"),
        (TALKS, {"max_turns": 1}, r"parameters: max_turns: must be at least min_turns \(2\)"),
    ],
)
def test_a_fault_is_one_line_that_names_the_place(tmp_path, tokenizer, records, changes, message):
    with pytest.raises(ServelabError) as raised:
        made(tmp_path, tokenizer, records, **changes)
    assert re.search(message, str(raised.value)) and "\n" not in str(raised.value)
