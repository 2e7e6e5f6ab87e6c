"""Workloads: configuration, and what every kind promises of its requests."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from workloads import replay

from servelab.assets.datasets import Dataset, fetch_dataset, load_datasets, load_stored_dataset
from servelab.assets.workloads import WARMUP_REQUESTS, WORKLOADS, load_workloads
from servelab.core.errors import ServelabError
from servelab.core.run_spec import PathSource
from servelab.metrics.tables.schemas import TURNS, WORKLOAD_REQUESTS

ROOT = Path(__file__).parents[2]
SOURCE = PathSource(path="/models/m", revision="1")
WORDS = [f"w{index}" for index in range(400)]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    """A word a token; ids 0 and 1 are special."""
    made = Tokenizer(models.WordLevel({word: index for index, word in enumerate(["<s>", "</s>", *WORDS])}))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.add_special_tokens(["<s>", "</s>"])
    return made


def turn(who: str, length: int, start: int) -> dict[str, str]:
    return {"from": who, "value": " ".join(WORDS[(start + step) % len(WORDS)] for step in range(length))}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """120 fitting conversations among ones that the filters leave out; each question starts with its own word."""
    records = [
        {"conversations": [turn("human", 4 + index % 9, index), turn("gpt", 4 + index % 5, 0)]} for index in range(120)
    ]
    records += [
        {"conversations": []},
        {"conversations": [turn("human", 9, 200)]},
        {"conversations": [turn("human", 3, 201), turn("gpt", 9, 0)]},
        {"conversations": [turn("human", 9, 202), turn("gpt", 3, 0)]},
        {"conversations": [turn("human", 30, 203), turn("gpt", 9, 0)]},
        {"conversations": [turn("human", 9, 204), turn("gpt", 30, 0)]},
        {"conversations": [turn("human", 19, 205), turn("gpt", 19, 0)]},
        {"conversations": [turn("human", 9, 206), turn("system", 9, 0)]},
        {"conversations": [turn("human", 4, 0), turn("gpt", 8, 5)]},
        {"conversations": [turn("gpt", 9, 207), turn("human", 6, 208), turn("gpt", 7, 0)]},
    ]
    return store(tmp_path_factory.mktemp("dataset"), "d.json", json.dumps(records))


TRACE = [
    {
        "timestamp": 500 * (index // 2) + 1000,
        "input_length": 520 + index % 5,
        "output_length": 2,
        "hash_ids": [index % 3, 100 + index],
    }
    for index in range(60)
]


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trace")
    text = "".join(json.dumps(row) + "\n" for row in [*TRACE, {**TRACE[0], "input_length": 999, "output_length": 9}])
    return store(folder, "trace.jsonl", text)


def store(folder: Path, name: str, text: str | bytes) -> Path:
    data = text.encode() if isinstance(text, str) else text
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(data)
    entry = Dataset.model_validate(
        {
            "title": "T",
            "file": name,
            "license": "x",
            "size_bytes": len(data),
            "sha256": hashlib.sha256(data).hexdigest(),
            "sources": [{"kind": "path", "path": str(folder / name)}],
        }
    )
    return fetch_dataset("d", entry, folder / "stored")


@pytest.fixture(scope="module")
def own_prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    lines = [{"prompt": turn("me", 6 + index % 5, index)["value"], "arrival_s": index / 4} for index in range(40)]
    return store(tmp_path_factory.mktemp("prompts"), "own.jsonl", "".join(json.dumps(line) + "\n" for line in lines))


@pytest.fixture(scope="module")
def conversations(tmp_path_factory: pytest.TempPathFactory) -> Path:
    records = [
        {"conversations": [turn(("human", "gpt")[k % 2], 4 + index % 5, 6 * index + k) for k in range(6)]}
        for index in range(40)
    ]
    return store(tmp_path_factory.mktemp("talks"), "talks.json", json.dumps(records))


@pytest.fixture
def dataset_of(dataset: Path, trace: Path, own_prompts: Path, conversations: Path) -> dict[str, Path]:
    return {
        "conversations": conversations,
        "prompts": own_prompts,
        "random": Path(),
        "random_text": Path(),
        "sharegpt": dataset,
        "shared_prefix": Path(),
        "trace": trace,
    }


SMALL: dict[str, dict[str, Any]] = {
    "conversations": {"max_turns": 3},
    "prompts": {"endpoint": "chat", "output_tokens": 5},
    "random": {"input_tokens": 12, "output_tokens": 5},
    "random_text": {"input_tokens": 12, "output_tokens": 5, "endpoint": "chat"},
    "sharegpt": {"endpoint": "chat", "max_input_tokens": 20, "max_output_tokens": 20, "max_total_tokens": 30},
    "shared_prefix": {"groups": 4, "prefix_tokens": 20, "suffix_tokens": 8, "output_tokens": 5},
    "trace": {"format": "mooncake", "max_input_tokens": 600},
}


def make(kind: str, tokenizer: Tokenizer, dataset: Path, **changes: Any) -> pa.Table:
    workload = WORKLOADS.get(kind)
    values = {"num_requests": 40, "seed": 7, **SMALL[kind], **changes}
    if workload.needs_dataset:
        values.setdefault("dataset_sha256", load_stored_dataset(dataset)[0].sha256)
    return workload.make(workload.Parameters.model_validate(values), tokenizer, dataset)


def prompts(table: pa.Table, phase: str | None = None) -> list[Any]:
    return [
        row["prompt"] if row["prompt"] is not None else tuple(row["prompt_token_ids"])
        for row in table.to_pylist()
        if phase in (None, row["phase"])
    ]


@pytest.mark.parametrize("kind", WORKLOADS.names())
def test_what_every_kind_promises(kind: str, tokenizer: Tokenizer, dataset_of: dict[str, Path]) -> None:
    table = make(kind, tokenizer, dataset_of[kind])
    sends_turns = WORKLOADS.get(kind).sends_turns
    assert table.schema.equals(pa.schema([*WORKLOAD_REQUESTS, *(TURNS if sends_turns else ())]))
    rows = table.to_pylist()
    assert [row["request_index"] for row in rows] == [*range(40), *range(WARMUP_REQUESTS)]
    assert [row["phase"] for row in rows] == ["measured"] * 40 + ["warmup"] * WARMUP_REQUESTS
    assert len(set(prompts(table))) == len(rows), "no prompt twice, in whatever phase"
    for row in rows:
        assert (row["prompt"] is None) != (row["prompt_token_ids"] is None)
        ids = row["prompt_token_ids"] or tokenizer.encode(row["prompt"], add_special_tokens=False).ids
        assert row["input_tokens"] > len(ids) if row.get("turn") else row["input_tokens"] == len(ids)
        assert row["output_tokens"] > 0
        assert (row["prompt"] is None) == WORKLOADS.get(kind).sends_token_ids
        has_time = WORKLOADS.get(kind).has_arrival_times and row["phase"] == "measured"
        assert (row["arrival_s"] is not None) == has_time


@pytest.mark.parametrize("kind", WORKLOADS.names())
def test_seed_decides(kind: str, tokenizer: Tokenizer, dataset_of: dict[str, Path]) -> None:
    dataset = dataset_of[kind]
    assert make(kind, tokenizer, dataset).equals(make(kind, tokenizer, dataset))
    assert prompts(make(kind, tokenizer, dataset)) != prompts(make(kind, tokenizer, dataset, seed=8))


def test_random_prompts_have_exact_lengths_ordinary_tokens_and_no_shared_prefix(tokenizer: Tokenizer) -> None:
    table = make("random", tokenizer, Path())
    ids = table["prompt_token_ids"].to_pylist()
    assert {len(prompt) for prompt in ids} == {12}
    assert {*table["output_tokens"].to_pylist()} == {5}
    assert len({prompt[0] for prompt in ids}) == len(ids)
    assert {token for prompt in ids for token in prompt} <= set(range(2, 2 + len(WORDS)))


def test_sharegpt_takes_first_questions_that_pass_the_filters(tokenizer: Tokenizer, dataset: Path) -> None:
    rows = make("sharegpt", tokenizer, dataset, num_requests=57).to_pylist()
    answers = {turn("human", 4 + index % 9, index)["value"]: 4 + index % 5 for index in range(120)}
    answers[turn("human", 6, 208)["value"]] = 7
    assert {row["prompt"]: row["output_tokens"] for row in rows} == answers


GOOD = [{"conversations": [turn("human", 5, index), turn("gpt", 6, 9)]} for index in range(110)]


def as_roles(shape: str) -> list[dict[str, Any]]:
    return [
        {shape: [{"role": "user", "content": q["value"]}, {"role": "assistant", "content": a["value"]}]}
        for q, a in (record["conversations"] for record in GOOD)
    ]


def test_shapes_and_encodings_of_public_data_sets_give_the_same_requests(tokenizer: Tokenizer, tmp_path: Path) -> None:
    as_array, as_lines = json.dumps(GOOD), "\n".join(map(json.dumps, GOOD))
    roles = [json.dumps(as_roles(shape)) for shape in ("conversations", "messages", "conversation", "items")]
    wrapped = json.dumps({"data": GOOD}, indent=1)
    files = [text.encode() for text in (as_array, as_lines, wrapped, *roles)]
    files += [as_array.encode("utf-8-sig")]
    wanted = make("sharegpt", tokenizer, store(tmp_path, "wanted.json", as_array))
    for number, data in enumerate(files):
        assert make("sharegpt", tokenizer, store(tmp_path / str(number), "d.json", data)).equals(wanted), data[:60]


BAD = {
    "value: null": b'{"conversations": [{"from": "human", "value": null}, {"from": "gpt", "value": "a"}]}',
    "turns: null": b'{"conversations": null}',
    "half a character": b'{"conversations": [{"from": "human", "value": "\\ud83d"}, {"from": "gpt", "value": "a"}]}',
    "Latin-1": b'{"conversations": [{"from": "human", "value": "\xe9"}, {"from": "gpt", "value": "a"}]}',
    "no JSON": b'{"conversations": [',
}


@pytest.mark.parametrize("fault", BAD)
def test_a_bad_record_is_left_out_and_named_and_many_are_an_error(
    tokenizer: Tokenizer, tmp_path: Path, capfd: pytest.CaptureFixture[str], fault: str
) -> None:
    lines = [json.dumps(record).encode() for record in GOOD]
    wanted = make("sharegpt", tokenizer, store(tmp_path, "good.jsonl", b"\n".join(lines)))
    one = store(tmp_path / "one", "d.jsonl", b"\n".join([*lines[:7], BAD[fault], *lines[7:]]))
    assert make("sharegpt", tokenizer, one).equals(wanted)
    assert "1 of 111 records cannot be used: record 8: " in capfd.readouterr().err
    many = store(tmp_path / "many", "d.jsonl", b"\n".join([*lines, *[BAD[fault]] * 9]))
    with pytest.raises(ServelabError, match=r"9 of 119 records cannot be used: record 111: .*; record 113: [^;]*$"):
        make("sharegpt", tokenizer, many)


def test_too_few_requests_say_how_many_questions_the_records_have(tokenizer: Tokenizer, tmp_path: Path) -> None:
    repeated = store(tmp_path, "d.json", json.dumps(GOOD[:3] * 5 + [{"conversations": [turn("human", 9, 0)]}]))
    says = r"16 records have 3 different questions with an answer; 3 requests pass the length filters, 74 are needed"
    with pytest.raises(ServelabError, match=says):
        make("sharegpt", tokenizer, repeated, num_requests=10)


def test_trace_keeps_times_and_lengths(tokenizer: Tokenizer, trace: Path) -> None:
    rows = make("trace", tokenizer, trace, speed=2.0).to_pylist()[:40]
    assert [row["arrival_s"] for row in rows] == [0.25 * (index // 2) for index in range(40)]
    assert [row["input_tokens"] for row in rows] == [row["input_length"] for row in TRACE[:40]]
    assert {row["output_tokens"] for row in rows} == {2}
    with pytest.raises(ServelabError, match="60 of 61 requests pass the length filters, 61 are needed"):
        make("trace", tokenizer, trace, num_requests=61)


def test_a_replay_says_how_long_it_takes_and_a_time_is_a_number(tokenizer: Tokenizer, tmp_path: Path, capfd) -> None:
    lengths = {"input_length": 20, "output_length": 2}
    for unit, says in (
        (1000, "a replay of 30 requests takes 14.50 s, 2.07 a second"),
        (1, "a replay of 30 requests takes 0.01 s, 2,068.97 a second; that is implausible"),
    ):
        lines = [json.dumps({"timestamp": at * 0.5 * unit, **lengths}) for at in [*range(30), float("nan")]]
        rows = make("trace", tokenizer, store(tmp_path, "t.jsonl", "\n".join(lines)), num_requests=30)
        assert replay(rows["arrival_s"].drop_null().to_pylist()).startswith(says)
        assert "record 31: timestamp is nan, which is no time" in capfd.readouterr().err


def common(one: list[int], other: list[int]) -> int:
    """Tokens with which both begin."""
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def test_traced_prompts_begin_alike_as_the_recorded_ones_did(tokenizer: Tokenizer, trace: Path) -> None:
    ids = make("trace", tokenizer, trace)["prompt_token_ids"].to_pylist()
    for one in range(12):
        for other in range(one):
            alike = common(ids[one], ids[other])
            assert 512 <= alike < 520 if one % 3 == other % 3 else alike < 8
    assert all(common(warmup, measured) < 8 for warmup in ids[40:] for measured in ids[:3])


def test_shared_prefixes_are_exact(tokenizer: Tokenizer) -> None:
    table = make("shared_prefix", tokenizer, Path())
    ids = table["prompt_token_ids"].to_pylist()
    assert {len(prompt) for prompt in ids} == {28}
    for one in range(40):
        for other in range(one):
            assert common(ids[one], ids[other]) == (20 if one % 4 == other % 4 else 0)
    assert {tuple(prompt[:20]) for prompt in ids[:40]}.isdisjoint(tuple(prompt[:20]) for prompt in ids[40:])
    kind = WORKLOADS.get("shared_prefix")
    shared = kind.shared_input({"num_requests": 40, "seed": 7, **SMALL["shared_prefix"]})
    later = sum(max(common(prompt, before) for before in ids[:at]) for at, prompt in enumerate(ids[:40]) if at)
    assert shared == pytest.approx(later / (40 * 28))
    assert kind.shared_input({"num_requests": 3, "seed": 7, **SMALL["shared_prefix"]}) == 0


def test_trace_of_azure(tokenizer: Tokenizer, tmp_path: Path) -> None:
    for zone in ("", "+00:00"):
        text = f"TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 23:59:59.9000000{zone},4,3\n"
        text += f"2024-05-11 00:00:02{zone},9,1\n"
        rows = make("trace", tokenizer, store(tmp_path, "a.csv", text), format="azure", num_requests=2).to_pylist()
        assert [row["arrival_s"] for row in rows[:2]] == pytest.approx([0, 2.1])
        assert [(row["input_tokens"], row["output_tokens"]) for row in rows[:2]] == [(4, 3), (9, 1)]
    with pytest.raises(ServelabError, match="record 1: has not the azure format"):
        make("trace", tokenizer, store(tmp_path, "b.csv", text.replace("2024-05-10", "yesterday")), format="azure")


def test_configured_workloads_have_identities_that_name_the_dataset_by_content() -> None:
    datasets = load_datasets(ROOT / "config/datasets.yaml")
    workloads = load_workloads(ROOT / "config/workloads.yaml", datasets)
    spec = workloads["sharegpt"].spec(SOURCE)
    assert workloads["sharegpt"].dataset == "sharegpt-v3"
    assert spec.parameters["dataset_sha256"] == datasets["sharegpt-v3"].sha256
    assert "dataset" not in spec.parameters
    assert workloads["short-128x4"].endpoint == "completions"
    assert len({workload.spec(SOURCE).model_dump_json() for workload in workloads.values()}) == len(workloads)
    for workload in workloads.values():
        part = workload.dataset is not None and datasets[workload.dataset].part_of is not None
        assert not part or "part" in workload.title, "a part is never shown as the whole"
