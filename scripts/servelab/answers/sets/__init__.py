"""Question sets: where questions come from. Each is one file that registers itself."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from servelab.answers.question import Question
from servelab.core.errors import ConfigError
from servelab.core.registry import Registry


class QuestionSet(Protocol):
    """One source of questions; raise `version` when the same arguments give other questions."""

    version: str
    needs_file: bool

    def questions(self, file: Path | None, count: int | None, seed: int) -> list[Question]:
        """The questions: `count` of them by the seed's draw, or all; `ConfigError` if there are fewer.

        `file` is None unless `needs_file`.
        """


QUESTION_SETS: Registry[QuestionSet] = Registry("question set")


def drawn(total: int, count: int, seed: int) -> list[int]:
    """`count` of the positions below `total`, in order; the same for the same seed on every machine."""
    return sorted(random.Random(seed).sample(range(total), count))  # noqa: S311 (not for secrets)


QUESTION_SETS.load(__name__)


COUNT = 200
MOST = 4000
"""More would repeat themselves."""
EMBEDDED_TOKENS = 16
EXAMPLES = 3

_WORDS = """
apple bread chair dance eagle field glass heart island juice kitten lemon market night ocean paper queen river stone
table uncle village water yellow zebra butter candle doctor engine flower garden hammer insect jacket kettle ladder
mirror needle orange pencil rabbit school ticket valley window anchor basket camera desert finger guitar honey jungle
knife letter monkey number parrot pocket rocket silver summer tiger tower train turtle violin wagon winter wolf bridge
castle dragon feather forest hotel lamp moon mountain music picture planet road ship snow spoon storm street sugar sun
tree wall wind wood worm yard
"""
_ONES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")

Pair = tuple[str, str]
"""A question as one line, and its answer as one line."""


def _words(rng: random.Random, count: int) -> str:
    return " ".join(rng.sample(_WORDS.split(), count))


def _addition(rng: random.Random) -> Pair:
    one, other = rng.randint(1, 90), rng.randint(1, 9)
    return f"{one} + {other} =", str(one + other)


def _subtraction(rng: random.Random) -> Pair:
    one, other = rng.randint(10, 99), rng.randint(1, 9)
    return f"{one} - {other} =", str(one - other)


def _copying(rng: random.Random) -> Pair:
    text = _words(rng, rng.randint(3, 6))
    return f"Copy: {text} =>", text


def _counting(rng: random.Random) -> Pair:
    first, step = rng.randint(1, 300), rng.choice((1, 2, 5, 10))
    shown = [str(first + step * position) for position in range(5)]
    return f"Continue: {', '.join(shown[:4])} =>", shown[4]


def _first_word(rng: random.Random) -> Pair:
    text = _words(rng, rng.randint(3, 5))
    return f"First word of: {text} =>", text.split()[0]


def _last_word(rng: random.Random) -> Pair:
    text = _words(rng, rng.randint(3, 5))
    return f"Last word of: {text} =>", text.split()[-1]


def _first_letter(rng: random.Random) -> Pair:
    text = _words(rng, rng.randint(1, 2))
    return f"First letter of: {text} =>", text[0]


def _digits(rng: random.Random) -> Pair:
    digits = [rng.randint(0, 9) for _ in range(rng.randint(2, 4))]
    return f"In digits: {' '.join(_ONES[digit] for digit in digits)} =>", " ".join(map(str, digits))


KINDS: dict[str, Callable[[random.Random], Pair]] = {
    "addition": _addition,
    "subtraction": _subtraction,
    "copying": _copying,
    "counting": _counting,
    "first-word": _first_word,
    "last-word": _last_word,
    "first-letter": _first_letter,
    "digits": _digits,
}


def _examples(make: Callable[[random.Random], Pair], rng: random.Random, line: str) -> list[Pair]:
    """Solved questions of the kind, none of them the question itself."""
    examples: list[Pair] = []
    while len(examples) < EXAMPLES:
        example = make(rng)
        if example[0] != line:
            examples.append(example)
    return examples


class Embedded:
    """Questions of all kinds in turn; a larger count begins with the questions of a smaller one."""

    version = "1"
    needs_file = False

    def questions(self, file: Path | None, count: int | None, seed: int) -> list[Question]:
        """See `QuestionSet.questions`; 200 without a count, at most 4,000. No question is there twice."""
        count = COUNT if count is None else count
        if not 1 <= count <= MOST:
            raise ConfigError(f"the embedded set has 1 to {MOST:,} questions (found count {count:,})")
        rng = random.Random(seed)  # noqa: S311 (not for secrets)
        kinds = list(KINDS.items())
        asked: set[str] = set()
        questions: list[Question] = []
        while len(questions) < count:
            kind, make = kinds[len(questions) % len(kinds)]
            line, answer = make(rng)
            if line in asked:
                continue
            asked.add(line)
            examples = [f"{example} {right}" for example, right in _examples(make, rng, line)]
            questions.append(
                Question(
                    id=f"{kind}-{len(questions)}",
                    prompt="\n".join([*examples, line]),
                    max_tokens=EMBEDDED_TOKENS,
                    expected=answer,
                    grader="exact",
                    stop=("\n",),
                )
            )
        return questions


QUESTION_SETS.register("embedded", Embedded())
