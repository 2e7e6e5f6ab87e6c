"""Questions, grading, and the verdict on two sets of answers: what is lost beyond noise, and what nobody can tell."""

from __future__ import annotations

import json
import random
from functools import cache

import pytest

from servelab.answers.agreement import edit_share, first_difference, most_different
from servelab.answers.graders import GRADERS
from servelab.answers.judge import judge
from servelab.answers.paired_shares import loss_interval, mcnemar_p, score, smallest_seen
from servelab.answers.question import Question
from servelab.answers.questions import embedded_questions, read_questions
from servelab.core.errors import ConfigError

RIGHT, WRONG = "It is seven.", "I do not know."


def questions(count: int) -> list[Question]:
    return [Question(f"q{number}", f"{number}?", "seven") for number in range(count)]


def side(*outcomes: bool | None) -> dict[str, str | None]:
    """Answers of one start: right, wrong, or none."""
    return {f"q{n}": None if right is None else RIGHT if right else WRONG for n, right in enumerate(outcomes)}


GRADED = {
    "words": (
        [("The capital is PARIS.", "Paris"), ("\n\n 'Buenos Aires',", "buenos aires"), ("8", "8")],
        [("Parisian", "Paris"), ("Hm.\nParis", "Paris"), ("", "Paris"), ("Aires Buenos", "Buenos Aires"), ("18", "8")],
    ),
    "last_number": (
        [("so 3 + 4 = 7.", "7"), ("It costs $1,200.50", "1200.5"), ("-3", "-3"), ("7.0", "7")],
        [("7 of 8", "7"), ("", "7"), ("seven", "7"), ("none", "none")],
    ),
}


@pytest.mark.parametrize("name", GRADERS.names())
def test_every_grader_tells_right_from_wrong(name):
    right, wrong = GRADED[name]
    grade = GRADERS.get(name)
    assert all(grade(*each) for each in right)
    assert not any(grade(*each) for each in wrong)


def test_own_questions_are_the_same_on_all_machines_and_different_from_each_other():
    made = embedded_questions(300)
    assert made[:60] == embedded_questions(60)
    assert len({each.prompt for each in made}) == len({each.name for each in made}) == 300
    assert {each.name.partition("-")[0] for each in made} == {"capital", "copy", "opposite", "count", "next", "sum"}
    assert (made[0].prompt, made[0].expected) == ("What is the capital of Argentina?", "Buenos Aires")


def test_questions_of_a_file(tmp_path):
    rows = [
        {"question": "2 + 2?", "answer": "We add.\n#### 4"},
        {"question": "Why?", "name": "why", "max_tokens": 9},
        {"question": "Capital of France?", "answer": "Paris"},
    ]
    path = tmp_path / "own.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows) + "\n\n")
    assert read_questions(path, 3) == [
        Question("line-1", "2 + 2?", "4", "last_number"),
        Question("why", "Why?", None, "words", 9),
        Question("line-3", "Capital of France?", "Paris"),
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"question": "a"}\n', "has 1 questions, 2 are asked for"),
        ('{"question": "a"}\n{"question": ""}\n', "line 2: question"),
        ('{"question": "a"}\n{"questoin": "b"}\n', "line 2: .*did you mean `question`"),
        ('{"question": "a"}\nnothing\n', "line 2: not JSON"),
        ('{"question": "a"}\n["b"]\n', "line 2: "),
        ('{"question": "a", "name": "x"}\n{"question": "b", "name": "x"}\n', "line 2: name: `x` is taken"),
        ('{"question": "a"}\n{"question": "b", "answer": "c", "grader": "word"}\n', "did you mean `words`"),
    ],
)
def test_a_fault_of_a_file_is_named_by_its_line(tmp_path, content, message):
    path = tmp_path / "own.jsonl"
    path.write_text(content)
    with pytest.raises(ConfigError, match=message) as raised:
        read_questions(path, 2)
    assert "\n" not in str(raised.value)


def test_texts_are_compared_by_edits():
    assert (first_difference("abc", "abd"), first_difference("ab", "abc"), first_difference("a", "a")) == (2, 2, None)
    assert edit_share("kitten", "sitting") == pytest.approx(3 / 7)
    assert (edit_share("", ""), edit_share("", "ab"), edit_share(None, "ab"), edit_share(None, None)) == (0, 1, 1, 0)
    draw = random.Random(3)
    for _ in range(50):
        one, other = ("".join(draw.choices("abc", k=draw.randint(1, 9))) for _ in range(2))
        assert edit_share(one, other) * max(len(one), len(other)) == pytest.approx(distance(one, other))
    asked = questions(3)
    (first, share), *_ = most_different(asked, side(True, True, True), side(True, False, None))
    assert (first.name, share) == ("q2", 1.0)


@cache
def distance(one: str, other: str) -> int:
    """Levenshtein's definition, letter by letter."""
    if not one or not other:
        return len(one) + len(other)
    cut = distance(one[:-1], other[:-1]) + (one[-1] != other[-1])
    return min(cut, 1 + distance(one[:-1], other), 1 + distance(one, other[:-1]))


def test_the_interval_of_a_loss():
    """It is where the score is +1.96 and -1.96, within the possible, and the other way round for a gain."""
    for lost, gained, asked in ((0, 0, 60), (12, 3, 60), (60, 0, 60), (0, 60, 60), (1, 1, 2), (1, 0, 1)):
        low, high = loss_interval(lost, gained, asked)
        assert -1 <= low <= (lost - gained) / asked <= high <= 1
        mirrored = loss_interval(gained, lost, asked)
        assert (low, high) == (pytest.approx(-mirrored[1], abs=1e-9), pytest.approx(-mirrored[0], abs=1e-9))
        if high < 1:
            assert score(lost, gained, asked, high) == pytest.approx(-1.959964, abs=1e-3)
    assert mcnemar_p(5, 0) == pytest.approx(2 / 32)
    assert mcnemar_p(3, 3) == mcnemar_p(0, 0) == 1


def test_the_interval_holds_the_truth():
    draw = random.Random(1)
    for asked, both_change, loss in ((60, 0.1, 0.0), (60, 0.02, 0.05), (200, 0.05, 0.1)):
        held = 0
        for _ in range(400):
            outcomes = [draw.random() for _ in range(asked)]
            lost = sum(each < both_change + loss for each in outcomes)
            gained = sum(each > 1 - both_change for each in outcomes)
            low, high = loss_interval(lost, gained, asked)
            held += low <= loss <= high
        assert held >= 368, f"92 % of 400 studies at least; {held} at {asked}, {both_change}, {loss}"


def test_what_would_have_been_seen_is_the_first_loss_that_the_rule_calls_one():
    for gained, asked, allowed in ((0, 60, 0.02), (3, 60, 0.02), (0, 200, 0.05)):
        seen = smallest_seen(gained, asked, allowed)
        lost = round(seen * asked) + gained
        assert loss_interval(lost, gained, asked)[0] > allowed >= loss_interval(lost - 1, gained, asked)[0]
    assert smallest_seen(0, 1, 0.5) is None


def test_verdicts():
    asked = questions(60)
    whole = side(*[True] * 40, *[False] * 20)
    same = judge(asked, [whole, whole], [whole], 2)
    assert (same.verdict, same.loss_points, same.agreement_percent, same.floor_percent) == ("same answers", 0, 100, 100)
    worse = judge(asked, [whole], [side(*[True] * 25, *[False] * 35)], 2)
    assert (worse.verdict, worse.lost, worse.gained, worse.right, worse.baseline_right) == (
        "changes answers",
        15,
        0,
        25,
        40,
    )
    assert "25 of 60 questions right against 40" in worse.note and "25.0 points lost" in worse.note
    a_little = judge(asked, [whole], [side(*[True] * 39, *[False] * 21)], 2)
    assert a_little.verdict == "cannot tell"
    assert f"a loss of {a_little.smallest_loss_seen_points:.0f} points or more would have been seen" in a_little.note
    assert judge(asked, [whole], [side(*[True] * 25, *[False] * 35)], 60).verdict == "same answers"
    better = judge(asked, [side(*[True] * 25, *[False] * 35)], [whole], 2)
    assert (better.verdict, better.loss_points) == ("same answers", -25)


def test_what_is_not_answered_is_lost_and_a_silent_baseline_proves_nothing():
    asked = questions(60)
    whole = side(*[True] * 40, *[False] * 20)
    silent = side(*[None] * 60)
    assert judge(asked, [whole], [silent], 2).verdict == "changes answers"
    assert judge(asked, [whole], [{}], 2).verdict == "changes answers"
    for baseline in (silent, {}):
        for candidate in (whole, silent, {}):
            assert judge(asked, [baseline], [candidate], 2).verdict == "cannot tell"
    assert judge(asked, [], [whole], 2).verdict == judge([], [whole], [whole], 2).verdict == "not measured"


def test_ungraded_questions_are_compared_as_texts():
    asked = [Question(f"q{number}", "?") for number in range(10)]
    whole = side(*[True] * 10)
    assert judge(asked, [whole], [whole], 2).verdict == "same answers"
    other = judge(asked, [whole], [side(*[True] * 9, False)], 2, expected_same=True)
    assert (other.verdict, other.agreement_percent) == ("cannot tell", 90)
    assert "should leave them the same" in other.warning
    shaky = judge(asked, [whole, side(*[True] * 8, False, False)], [side(*[True] * 9, False)], 2, expected_same=True)
    assert shaky.warning is None, "the baseline differs from itself as much"


def test_error_rates():
    """A candidate that loses nothing, or exactly what is allowed, is rarely called worse; a broken one always is."""
    draw = random.Random(5)
    asked = questions(60)

    def studies(true_loss: float, allowed: float, count: int) -> int:
        worse = 0
        for _ in range(count):
            before = [draw.random() < 0.6 for _ in asked]
            after = [
                (right and draw.random() > true_loss / 0.6) if draw.random() > 0.06 else not right for right in before
            ]
            worse += judge(asked, [side(*before)], [side(*after)], allowed).verdict == "changes answers"
        return worse

    assert studies(0.0, 2, 150) <= 8
    assert studies(0.5, 2, 20) == 20
