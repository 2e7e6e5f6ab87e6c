"""Where questions come from: the set that comes with Servelab, or a JSON lines file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from pydantic import Field, ValidationError

from servelab.answers.graders import GRADERS
from servelab.answers.question import Question
from servelab.core.errors import ConfigError
from servelab.core.registry import nearest
from servelab.core.run_spec import Strict
from servelab.core.yaml_file import describe_validation_error

EMBEDDED_VERSION = "1"
"""Raise it when the embedded questions change."""
_SEED = 20
_CAPITALS = {
    "France": "Paris",
    "Germany": "Berlin",
    "Italy": "Rome",
    "Spain": "Madrid",
    "Japan": "Tokyo",
    "China": "Beijing",
    "Russia": "Moscow",
    "England": "London",
    "Greece": "Athens",
    "Egypt": "Cairo",
    "Portugal": "Lisbon",
    "Austria": "Vienna",
    "Poland": "Warsaw",
    "Ireland": "Dublin",
    "Norway": "Oslo",
    "Sweden": "Stockholm",
    "Denmark": "Copenhagen",
    "Finland": "Helsinki",
    "Hungary": "Budapest",
    "Cuba": "Havana",
    "Peru": "Lima",
    "Thailand": "Bangkok",
    "South Korea": "Seoul",
    "Argentina": "Buenos Aires",
}
_OPPOSITES = {
    "hot": "cold",
    "big": "small",
    "up": "down",
    "left": "right",
    "day": "night",
    "black": "white",
    "open": "closed",
    "wet": "dry",
    "happy": "sad",
    "rich": "poor",
    "early": "late",
    "full": "empty",
    "fast": "slow",
    "good": "bad",
    "high": "low",
    "young": "old",
}
_AFTER = {
    "day": "Monday Tuesday Wednesday Thursday Friday Saturday Sunday",
    "month": "January February March April May June July August September October November December",
    "number": "one two three four five six seven eight nine ten eleven twelve",
}
_WORDS = "lantern river copper window garden silver pocket thunder basket mirror candle forest bridge hammer island"


def embedded_questions(count: int) -> list[Question]:
    """The first questions of Servelab's own set, the same on all machines; as many as asked, without repetition.

    They are easy on purpose: a model of 135M parameters gets about half of them right, so that losses are seen.
    """
    made: dict[str, Question] = {}
    kinds = _kinds(Random(_SEED))  # noqa: S311 (not for secrets)
    while len(made) < count:
        kind, prompt, expected = next(kinds)
        made.setdefault(prompt, Question(f"{kind}-{len(made)}", prompt, expected))
    return list(made.values())


def _kinds(draw: Random) -> Iterator[tuple[str, str, str]]:
    """Kind, prompt and right answer of one question after another, the kinds in turn."""
    while True:
        country = draw.choice(list(_CAPITALS))
        yield "capital", f"What is the capital of {country}?", _CAPITALS[country]
        words = draw.sample(_WORDS.split(), draw.randint(2, 4))
        yield "copy", f"Repeat exactly: {' '.join(words)}", " ".join(words)
        word = draw.choice(list(_OPPOSITES))
        yield "opposite", f"What is the opposite of {word}?", _OPPOSITES[word]
        first = draw.randint(1, 60)
        yield "count", f"Continue the list: {', '.join(str(first + step) for step in range(4))},", str(first + 4)
        what = draw.choice(list(_AFTER))
        order = _AFTER[what].split()
        at = draw.randrange(len(order) - 1)
        yield "next", f"Which {what} comes right after {order[at]}?", order[at + 1]
        a, b = draw.randint(1, 9), draw.randint(1, 9)
        yield "sum", f"What is {a} + {b}?", str(a + b)


class _Line(Strict):
    question: str = Field(min_length=1)
    answer: str | None = Field(None, min_length=1)
    grader: str | None = None
    name: str | None = Field(None, min_length=1)
    max_tokens: int | None = Field(None, gt=0, strict=True)


def read_questions(path: Path, count: int) -> list[Question]:
    """The first questions of a JSON lines file: `question`, and if known `answer`, `grader`, `name`, `max_tokens`.

    An answer as GSM8K's file has it, its last line `#### 42`, is graded by its number. `ConfigError` with file and
    line.
    """
    found: list[Question] = []
    names: set[str] = set()
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        if len(found) == count:
            break
        if line.strip():
            found.append(_question(f"{path}: line {number:,}", number, line))
            if found[-1].name in names:
                raise ConfigError(f"{path}: line {number:,}: name: `{found[-1].name}` is taken by an earlier line")
            names.add(found[-1].name)
    if len(found) < count:
        raise ConfigError(f"{path}: has {len(found):,} questions, {count:,} are asked for: ask for fewer")
    return found


def _question(where: str, number: int, content: bytes) -> Question:
    try:
        given: Any = json.loads(content)
        line = _Line.model_validate(given)
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{where}: not JSON: {error}") from None
    except ValidationError as error:
        raise ConfigError(describe_validation_error(error, where, _Line)) from None
    answer, grader = line.answer, line.grader or "words"
    if answer is not None and "####" in answer:
        answer, grader = answer.rpartition("####")[2].strip(), line.grader or "last_number"
    if grader not in GRADERS.names():
        raise ConfigError(f"{where}: grader: unknown grader `{grader}`{nearest(grader, GRADERS.names())}")
    return Question(line.name or f"line-{number}", line.question, answer, grader, line.max_tokens)
