"""Questions and their grades: the embedded set, GSM8K, files of one's own."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from servelab.answers import sets
from servelab.answers.question import Question, grade
from servelab.answers.sets import QUESTION_SETS
from servelab.assets.pinned_file import Content
from servelab.core.errors import ConfigError
from servelab.core.identity import content_id, file_sha256


def embedded(count=None, seed=0):
    return QUESTION_SETS.get("embedded").questions(None, count, seed)


def test_the_embedded_set_is_the_same_everywhere():
    questions = embedded()
    assert len(questions) == 200
    assert questions == embedded(200, 0) != embedded(200, 1)
    assert content_id([asdict(question) for question in questions]) == "fa67237cacbface8ec50"
    assert embedded(50) == questions[:50]


@pytest.mark.parametrize(
    ("grader", "text", "expected", "right"),
    [
        ("exact", " Red.\n", "red", True),
        ("exact", "a  b", "a b", True),
        ("exact", "", "a", False),
        ("contains", "It is Paris, I think", "paris", True),
        ("contains", "Parisian", "paris", False),
        ("contains", "New\nYork", "new york", True),
        ("last_number", "so 3 + 4 = 7.", "7", True),
        ("last_number", "She makes $1,234.", "1234", True),
        ("last_number", "it is 7 of 9", "7", False),
        ("last_number", "no number", "7", False),
        ("last_number", "#### 18", "so\n#### 18", True),
        ("last_number", "18.0", "18", False),
    ],
)
def test_graders(grader, text, expected, right):
    assert grade(grader, text, expected) is right


def test_gsm8k_is_asked_as_the_harness_asks(tmp_path, monkeypatch):
    records = [
        {"question": f"How many is {number}?", "answer": f"It is <<{number}={number}>>{number}.\n#### 1,{number:03}"}
        for number in range(30)
    ]
    file = tmp_path / "test.jsonl"
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    gsm8k = QUESTION_SETS.get("gsm8k")
    with pytest.raises(ConfigError, match="not GSM8K's published test file"):
        gsm8k.questions(file, None, 0)
    with pytest.raises(ConfigError, match="not GSM8K's published test file"):
        gsm8k.questions(tmp_path / "none", None, 0)
    pinned = Content(size_bytes=file.stat().st_size, sha256=file_sha256(file))
    monkeypatch.setattr(sets, "CONTENT", pinned)
    questions = gsm8k.questions(file, None, 0)
    assert len(questions) == 30
    assert questions[7] == Question(
        id="gsm8k-7",
        prompt="Q: How many is 7?\nA: Let's think step by step.",
        max_tokens=256,
        expected="1,007",
        grader="last_number",
        stop=("Q:", "</s>", "<|im_end|>"),
    )
    assert grade(questions[7].grader, "so the answer is $1007.", questions[7].expected)
    some = gsm8k.questions(file, 5, 0)
    assert len(some) == 5
    assert set(some) < set(questions)
    assert some == gsm8k.questions(file, 5, 0) != gsm8k.questions(file, 5, 1)
    with pytest.raises(ConfigError, match=r"has 30 questions \(found count 31\)"):
        gsm8k.questions(file, 31, 0)


def own(tmp_path, *lines, count=None):
    file = tmp_path / "mine.jsonl"
    file.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines))
    return QUESTION_SETS.get("own").questions(file, count, 0)


def test_questions_of_ones_own(tmp_path):
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Capital of France?"}]
    questions = own(
        tmp_path,
        {"id": "sum", "prompt": "1 + 1 =", "expected": "2", "grader": "last_number", "max_tokens": 4, "stop": ["\n"]},
        "",
        {"messages": messages},
    )
    assert questions == [
        Question("sum", 4, prompt="1 + 1 =", expected="2", grader="last_number", stop=("\n",)),
        Question("line-3", 64, messages=tuple(messages)),
    ]
    assert len(own(tmp_path, *({"prompt": f"{n}"} for n in range(9)), count=4)) == 4


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], r"mine.jsonl: has no questions"),
        (["nonsense"], r"mine.jsonl: line 1: .*JSON"),
        ([{"prompt": "a"}, {"promt": "b"}], r"line 2: promt: unknown key `promt`; did you mean `prompt`"),
        ([{}], r"line 1: prompt: give either `prompt` or `messages`"),
        ([{"prompt": "a", "max_tokens": 0}], r"line 1: max_tokens: "),
        (
            [{"prompt": "a", "expected": "b", "grader": "exakt"}],
            r"line 1: grader: unknown grader `exakt`; did you mean",
        ),
        ([{"prompt": "a", "grader": "exact"}], r"line 1: expected: a graded question needs the right answer"),
        ([{"prompt": "a", "expected": " "}], r"line 1: expected: is empty"),
        ([{"prompt": "a", "stop": [""]}], r"line 1: stop: an empty text"),
        ([{"prompt": "a", "id": "x"}, {"prompt": "b", "id": "x"}], r"line 2: id: `x` is the id of line 1 already"),
        ([{"messages": [{"role": "robot", "content": "b"}]}], r"line 1: messages.0.role: "),
    ],
)
def test_what_is_wrong_in_a_file_of_questions(tmp_path, lines, message):
    with pytest.raises(ConfigError, match=message):
        own(tmp_path, *lines)
