"""The workload `prompts`: a file of one's own, sent as it is; a fault of it is named with its line."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from servelab.assets.datasets import fetch_dataset, load_datasets
from servelab.assets.workloads import WORKLOADS, load_workloads
from servelab.core.errors import ServelabError
from servelab.measure.load import LoadPlan
from servelab.measure.load.sender import send_load

TEXTS = ["normal é\u2028  two  spaces \t\r\n", 'normal "quotes" \\ and \x00 and 日本語 🙂', "normal " + "x" * 5000]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    """A byte a token."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE(vocab={letter: index for index, letter in enumerate(alphabet)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    return made


def made(folder: Path, tokenizer: Tokenizer, content: str, kind: str = "prompts", **changes: Any) -> pa.Table:
    """The requests for a file with this content, through the configuration as a user writes it."""
    file = folder / "own.jsonl"
    file.write_bytes(content.encode())
    described = {
        "title": "Mine",
        "file": file.name,
        "license": "own",
        "size_bytes": file.stat().st_size,
        "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
        "sources": [{"kind": "path", "path": str(file)}],
    }
    (folder / "datasets.yaml").write_text(json.dumps({"mine": described}))
    own = {"endpoint": "chat", "output_tokens": 6} if kind == "prompts" else {}
    entry = {
        "title": "Mine",
        "kind": kind,
        "parameters": {"dataset": "mine", "seed": 1, "num_requests": 3, **own, **changes},
    }
    (folder / "workloads.yaml").write_text(json.dumps({"mine": entry}))
    datasets = load_datasets(folder / "datasets.yaml")
    workload = load_workloads(folder / "workloads.yaml", datasets)["mine"]
    stored = fetch_dataset("mine", datasets["mine"], folder / "stored")
    maker = WORKLOADS.get(workload.kind)
    return maker.make(maker.Parameters.model_validate(workload.parameters), tokenizer, stored)


def lines(*rows: dict[str, Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def test_a_server_receives_the_very_text(tmp_path, tokenizer, stub, server):
    first, second, third = TEXTS
    content = lines({"prompt": first}, {"messages": [{"role": "user", "content": second}]}, {"prompt": third})
    requests = tmp_path / "requests.parquet"
    pq.write_table(made(tmp_path, tokenizer, content), requests)
    for endpoint in ("chat", "completions"):
        send_load(LoadPlan(base_url=server, endpoint=endpoint, model="m", requests=requests))
    received = [body["prompt"] if "prompt" in body else body["messages"][0]["content"] for body in stub.bodies]
    assert sorted(text.encode() for text in received) == sorted(text.encode() for text in TEXTS * 2)


def test_a_server_receives_all_messages_of_a_line(tmp_path, tokenizer, stub, server):
    said = [{"role": role, "content": f"normal {role} é"} for role in ("system", "user", "assistant", "user")]
    table = made(tmp_path, tokenizer, lines({"messages": said}, {"messages": said[1:2]}), num_requests=2)
    assert table["input_tokens"].to_pylist()[:2] == [sum(len(each["content"].encode()) for each in said), 14]
    requests = tmp_path / "requests.parquet"
    pq.write_table(table, requests)
    records, _, _ = send_load(LoadPlan(base_url=server, endpoint="chat", model="m", requests=requests))
    assert sorted((body["messages"] for body in stub.bodies), key=len) == [said[1:2], said]
    assert records["error"].to_pylist() == [None, None]
    assert records["turn"].to_pylist() == [None, None]


GOOD = lines({"prompt": "a"})


@pytest.mark.parametrize(
    ("content", "changes", "message"),
    [
        (GOOD + "\n" + lines({"prompt": "b", "max_token": 3}), {}, r"line 3: max_token: .*did you mean `max_tokens`"),
        ('[\n{"prompt": "a"}]\n', {}, "line 1: is a JSON array: write one object a line"),
        (GOOD + lines({}), {}, "line 2: give either `prompt` or `messages`"),
        (GOOD + lines({"prompt": "b", "messages": [{"role": "user", "content": "c"}]}), {}, "line 2: give either"),
        (
            GOOD + lines({"messages": [{"role": "system", "content": "c"}]}),
            {},
            "line 2: messages: the last one must be",
        ),
        (GOOD + lines({"prompt": "b", "arrival_s": 1}), {}, "line 2: arrival_s: give it in all lines or in none"),
        (GOOD * 2, {}, "mine: has 2 prompts, 3 are needed"),
        (GOOD + lines({"prompt": "bcd"}), {"max_total_tokens": 8}, "line 2: 3 tokens and 6 of output are more than"),
        (
            lines({"messages": [{"role": "user", "content": "c"}]}),
            {"endpoint": "completions"},
            "line 1: messages: only `endpoint: chat`",
        ),
        (GOOD + '{"prompt": "\\ud800"}\n', {}, "line 2: "),
    ],
)
def test_a_fault_is_one_line_that_names_the_place(tmp_path, tokenizer, content, changes, message):
    with pytest.raises(ServelabError) as raised:
        made(tmp_path, tokenizer, content, **changes)
    assert re.search(message, str(raised.value)) and "\n" not in str(raised.value)
