"""GSM8K: its published test file, asked as task `gsm8k_cot_zeroshot` of lm-evaluation-harness does (version 3).

No examples come before the question, so that the test file alone is needed. Scores are those of that task's
`flexible-extract`, not of the five-shot task `gsm8k`.
"""

from __future__ import annotations

import json
from pathlib import Path

from servelab.answers.question import Question
from servelab.answers.sets import QUESTION_SETS, drawn
from servelab.assets.pinned_file import Content, holds
from servelab.core.errors import ConfigError

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
        if count is not None and not 1 <= count <= len(lines):
            raise ConfigError(
                f"{file}: GSM8K has {len(lines):,} questions (found count {count:,}); ask for 1 to that many"
            )
        chosen = range(len(lines)) if count is None else drawn(len(lines), count, seed)
        return [_question(number, json.loads(lines[number])) for number in chosen]


def _question(number: int, record: dict[str, str]) -> Question:
    return Question(
        id=f"gsm8k-{number}",
        prompt=f"Q: {record['question']}\nA: Let's think step by step.",
        max_tokens=GSM8K_TOKENS,
        expected=record["answer"].rpartition("#### ")[2],
        grader="last_number",
        stop=STOP,
    )


QUESTION_SETS.register("gsm8k", Gsm8k())
