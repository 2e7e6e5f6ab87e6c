"""Questions of one's own: each line of a JSON lines file is a question."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, ValidationError

from servelab.answers.graders import GRADERS
from servelab.answers.question import Question
from servelab.answers.sets import QUESTION_SETS, drawn
from servelab.assets.workloads.prompts import Message
from servelab.core.errors import ConfigError
from servelab.core.run_spec import Strict
from servelab.core.yaml_file import describe_validation_error

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
        questions: list[Question] = []
        line_of: dict[str, int] = {}
        for number, content in enumerate(lines, start=1):
            if not content.strip():
                continue
            question = _question(f"{file}: line {number:,}", number, content)
            if question.id in line_of:
                where = f"{file}: line {number:,}: id: `{question.id}`"
                raise ConfigError(f"{where} is the id of line {line_of[question.id]:,} already; give each its own")
            line_of[question.id] = number
            questions.append(question)
        if not questions:
            raise ConfigError(f"{file}: has no questions; each line is an object with `prompt` or `messages`")
        if count is None:
            return questions
        if not 1 <= count <= len(questions):
            raise ConfigError(
                f"{file}: has {len(questions):,} questions (found count {count:,}); ask for 1 to that many"
            )
        return [questions[position] for position in drawn(len(questions), count, seed)]


def _question(where: str, number: int, content: bytes) -> Question:
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
        raise ConfigError(
            f"{where}: expected: a graded question needs the right answer; give it, or leave out `grader`"
        )
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
