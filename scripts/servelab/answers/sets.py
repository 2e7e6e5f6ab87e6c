"""Question sets: where questions come from.

- `embedded`: short questions of arithmetic, copying, letters and words, made by a seeded generator. A model of 135M
  parameters answers many of them. Three solved examples precede each question, so that models without a chat template
  can answer too. An answer ends with its line.
- `gsm8k`: the published test file, asked as task `gsm8k_cot_zeroshot` of lm-evaluation-harness (version 3), without
  examples; scores are those of that task's `flexible-extract`.
- `own`: each line of a JSON lines file is a question.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
from pydantic import Field, ValidationError

from servelab.answers.question import GRADERS, Question
from servelab.assets.pinned_file import Content, holds
from servelab.assets.workloads import Parameters, Workload, open_dataset, table
from servelab.assets.workloads.conversations import Message
from servelab.core.errors import ConfigError
from servelab.core.registry import Registry
from servelab.core.run_spec import Strict
from servelab.core.yaml_file import describe_validation_error
from servelab.metrics.tables.schemas import ASKED

if TYPE_CHECKING:
    from tokenizers import Tokenizer


class QuestionSet(Protocol):
    """One source of questions; raise `version` when the same arguments give other questions."""

    version: str
    needs_file: bool

    def questions(self, file: Path | None, count: int | None, seed: int) -> list[Question]:
        """`count` questions drawn by the seed, or all; `ConfigError` if there are fewer."""


QUESTION_SETS: Registry[QuestionSet] = Registry("question set")


def _drawn(questions: Sequence[Question], count: int | None, seed: int, name: str) -> list[Question]:
    """`count` of the questions in their order, the same for the same seed on every machine; all without a count."""
    if count is None:
        return list(questions)
    if not 1 <= count <= len(questions):
        raise ConfigError(f"{name} has {len(questions):,} questions (found count {count:,}); ask for 1 to that many")
    return [questions[at] for at in sorted(random.Random(seed).sample(range(len(questions)), count))]  # noqa: S311 (not for secrets)


COUNT = 200
MOST = 4000
"""More would repeat themselves."""
EMBEDDED_TOKENS = 16
EXAMPLES = 3

_WORDS = Path(__file__).with_name("words.txt").read_text(encoding="utf-8").split()
_ONES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")

Pair = tuple[str, str]
"""A question as one line, and its answer as one line."""


def _words(rng: random.Random, count: int) -> str:
    return " ".join(rng.sample(_WORDS, count))


KINDS = ("addition", "subtraction", "copying", "counting", "first-word", "last-word", "first-letter", "digits")


def _made(kind: str, rng: random.Random) -> Pair:
    """A question of a kind, and its answer."""
    match kind:
        case "addition":
            one, other = rng.randint(1, 90), rng.randint(1, 9)
            return f"{one} + {other} =", str(one + other)
        case "subtraction":
            one, other = rng.randint(10, 99), rng.randint(1, 9)
            return f"{one} - {other} =", str(one - other)
        case "copying":
            text = _words(rng, rng.randint(3, 6))
            return f"Copy: {text} =>", text
        case "counting":
            first, step = rng.randint(1, 300), rng.choice((1, 2, 5, 10))
            shown = [str(first + step * position) for position in range(5)]
            return f"Continue: {', '.join(shown[:4])} =>", shown[4]
        case "first-word" | "last-word":
            text = _words(rng, rng.randint(3, 5))
            return f"{kind.capitalize().replace('-', ' ')} of: {text} =>", text.split()[
                0 if kind == "first-word" else -1
            ]
        case "first-letter":
            text = _words(rng, rng.randint(1, 2))
            return f"First letter of: {text} =>", text[0]
        case _:
            digits = [rng.randint(0, 9) for _ in range(rng.randint(2, 4))]
            return f"In digits: {' '.join(_ONES[digit] for digit in digits)} =>", " ".join(map(str, digits))


def _examples(kind: str, rng: random.Random, line: str) -> list[Pair]:
    """Solved questions of the kind, none of them the question itself."""
    examples: list[Pair] = []
    while len(examples) < EXAMPLES:
        example = _made(kind, rng)
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
        asked: set[str] = set()
        questions: list[Question] = []
        while len(questions) < count:
            kind = KINDS[len(questions) % len(KINDS)]
            line, answer = _made(kind, rng)
            if line in asked:
                continue
            asked.add(line)
            examples = [f"{example} {right}" for example, right in _examples(kind, rng, line)]
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


CONTENT = Content(size_bytes=749738, sha256="3730d312f6e3440559ace48831e51066acaca737f6eabec99bccb9e4b3c39d14")
"""`grade_school_math/data/test.jsonl` of github.com/openai/grade-school-math, at 3101c7d: 1,319 problems."""
GSM8K_TOKENS = 256
"""Most tokens of an answer, the harness's default."""
STOP = ("Q:", "</s>", "<|im_end|>")


class Gsm8k:
    """The test problems, each with its number in the file as id."""

    version = "1"
    needs_file = True

    def questions(self, file: Path | None, count: int | None, seed: int) -> list[Question]:
        """See `QuestionSet.questions`; `ConfigError` too if the file is not the published one."""
        if file is None or not holds(file, CONTENT):
            raise ConfigError(
                f"{file}: this is not GSM8K's published test file (sha256 {CONTENT.sha256[:12]}…, 749,738 bytes); "
                "take test.jsonl from github.com/openai/grade-school-math"
            )
        lines = file.read_text(encoding="utf-8").splitlines()
        questions = [_gsm8k_question(number, json.loads(line)) for number, line in enumerate(lines)]
        return _drawn(questions, count, seed, f"{file}: GSM8K")


def _gsm8k_question(number: int, record: dict[str, str]) -> Question:
    return Question(
        id=f"gsm8k-{number}",
        prompt=f"Q: {record['question']}\nA: Let's think step by step.",
        max_tokens=GSM8K_TOKENS,
        expected=record["answer"].rpartition("#### ")[2],
        grader="last_number",
        stop=STOP,
    )


QUESTION_SETS.register("gsm8k", Gsm8k())


OWN_TOKENS = 64


class _Line(Strict):
    id: str | None = Field(None, min_length=1, max_length=200)
    prompt: str | None = Field(None, min_length=1)
    messages: list[Message] | None = Field(None, min_length=1)
    max_tokens: int = Field(OWN_TOKENS, gt=0, strict=True)
    expected: str | None = None
    grader: str = "exact"
    stop: list[str] = Field([], max_length=4)


class Own:
    """The lines of the file; one without `id` has its line number, from 1, as `line-7`."""

    version = "1"
    needs_file = True

    def questions(self, file: Path | None, count: int | None, seed: int) -> list[Question]:
        """See `QuestionSet.questions`; `ConfigError` names file, line and key."""
        if file is None:
            raise ConfigError("questions of your own need a JSON lines `file`")
        try:
            lines = file.read_bytes().split(b"\n")
        except OSError as error:
            raise ConfigError(f"{file}: {error.strerror}; name a JSON lines file of questions") from None
        read = [
            (number, _own_question(f"{file}: line {number:,}", number, line))
            for number, line in enumerate(lines, start=1)
            if line.strip()
        ]
        line_of: dict[str, int] = {}
        for number, question in read:
            if (first := line_of.setdefault(question.id, number)) != number:
                where = f"{file}: line {number:,}: id: `{question.id}`"
                raise ConfigError(f"{where} is the id of line {first:,} already; give each its own")
        questions = [question for _, question in read]
        if not questions:
            raise ConfigError(f"{file}: has no questions; each line is an object with `prompt` or `messages`")
        return _drawn(questions, count, seed, f"{file}:")


def _own_question(where: str, number: int, content: bytes) -> Question:
    try:
        line = _Line.model_validate_json(content)
    except ValidationError as error:
        raise ConfigError(describe_validation_error(error, where, _Line)) from None
    if (line.prompt is None) == (line.messages is None):
        raise ConfigError(f"{where}: prompt: give either `prompt` or `messages`")
    try:
        GRADERS.get(line.grader)
    except ConfigError as error:
        raise ConfigError(f"{where}: grader: {error}") from None
    if line.expected is None and "grader" in line.model_fields_set:
        raise ConfigError(f"{where}: expected: a graded question needs the right answer; give it, or omit `grader`")
    if line.expected is not None and not line.expected.strip():
        raise ConfigError(f"{where}: expected: is empty; give the right answer, or leave it out")
    if any(not text for text in line.stop):
        raise ConfigError(f"{where}: stop: an empty text would end every answer; leave it out")
    return Question(
        id=line.id or f"line-{number}",
        prompt=line.prompt,
        messages=None if line.messages is None else tuple(message.model_dump() for message in line.messages),
        max_tokens=line.max_tokens,
        expected=line.expected,
        grader=line.grader,
        stop=tuple(line.stop),
    )


QUESTION_SETS.register("own", Own())


class QuestionsParameters(Parameters):
    """Which questions; the seed draws them."""

    questions: str = Field(description="Name of the set.")
    set_version: str = Field(description="Its version.")
    dataset_sha256: str | None = Field(None, description="sha256 of the set's file; null for a set without one.")


class Questions(Workload):
    """A kind of workload that is not registered, since no study lists it: questions are no load."""

    kind = "questions"
    version = "2"
    Parameters = QuestionsParameters

    def make(self, parameters: QuestionsParameters, tokenizer: Tokenizer, dataset: Path | None) -> pa.Table:
        """See `Workload.make`; the rows have the columns of `schemas.ASKED` besides, and none is a warm-up."""
        file = None
        if parameters.dataset_sha256 is not None:
            _, file = open_dataset(dataset, parameters.dataset_sha256)
        asked = QUESTION_SETS.get(parameters.questions).questions(file, parameters.num_requests, parameters.seed)
        texts = [_texts(each, parameters.endpoint) for each in asked]
        rows: list[dict[str, Any]] = [
            {
                "prompt": said[-1],
                "input_tokens": sum(len(tokenizer.encode(text, add_special_tokens=False).ids) for text in said),
                "output_tokens": each.max_tokens,
                "earlier": _earlier(each),
            }
            for said, each in zip(texts, asked, strict=True)
        ]
        found = table(rows, [])
        columns: dict[str, list[Any]] = {
            "question": [each.id for each in asked],
            "expected": [each.expected for each in asked],
            "grader": [each.grader for each in asked],
            "stop": [list(each.stop) for each in asked],
        }
        for name, values in columns.items():
            found = found.append_column(ASKED.field(name), pa.array(values, ASKED.field(name).type))
        return found


def _texts(question: Question, endpoint: str) -> list[str]:
    """The texts that are sent, the prompt last; `ConfigError` for a question that the endpoint does not take."""
    if (endpoint == "chat") != (question.messages is not None):
        given = "messages" if question.messages is not None else "a prompt"
        other = "chat" if endpoint == "completions" else "completions"
        raise ConfigError(f"question {question.id} has {given}, but answers.endpoint is {endpoint}: set it to {other}")
    if question.messages is None:
        return [str(question.prompt)]
    if question.messages[-1]["role"] != "user":
        raise ConfigError(f"question {question.id}: messages: the last one must be of role `user`: it is what is asked")
    return [message["content"] for message in question.messages]


def _earlier(question: Question) -> str | None:
    """The messages before the one that asks, as `schemas.TURNS` has them."""
    before = [dict(message) for message in (question.messages or ())[:-1]]
    return json.dumps(before, ensure_ascii=False) if before else None


QUESTIONS: Workload = Questions()
