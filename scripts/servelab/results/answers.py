"""The answers of a stage's candidates beside the baseline's, each from the run of its server start that was asked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

from pydantic import Field

from servelab.answers.comparison import CANNOT_TELL, NOT_MEASURED, SAME
from servelab.answers.judge import judge
from servelab.answers.question import Answer, grade
from servelab.core.files import FiniteOrNull, JsonPart
from servelab.metrics.tables import schemas
from servelab.results.run_records import read_sealed
from servelab.study.plan import Plan, PlannedRun
from servelab.study.study import Study

Row = dict[str, Any]
"""A row of schemas.RUN_ANSWERS."""


@dataclass
class StageAnswers:
    """Findings from the answers of a stage's candidates."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    """schemas.STAGE_ANSWERS: every answer beside the baseline's to the same question."""
    columns: dict[int, dict[str, Any]] = field(default_factory=dict)
    """Position of a candidate that was asked → its `answers…` columns of `schemas.STAGE_TABLE`."""
    accelerator_s: dict[int, float] = field(default_factory=dict)
    """Position → accelerator-seconds of its runs that were asked, which are no part of any load."""


@dataclass(frozen=True)
class _Asked:
    """A run that was asked."""

    run: PlannedRun
    accelerator_s: float
    rows: list[Row]
    """Its answers; none if the run failed."""


class AnswersFound(JsonPart):
    """A configuration's answers compared with the baseline's, question by question."""

    verdict: str = Field(description="`same`, `changes answers`, `cannot tell` or `not measured`.")
    why: str = Field(description="The figures in one sentence.")
    questions: str = Field(description="Set of questions.")
    asked: int = Field(0, description="Questions that the baseline answered.")
    same: int = Field(0, description="Answers with the same text as the baseline's.")
    graded: int = Field(0, description="Questions with a right answer.")
    right: int = Field(0, description="Its right answers.")
    baseline_right: int = Field(0, description="The baseline's right answers.")
    allowed_loss_points: float = Field(description="Percentage points of right answers that it may lose.")
    smallest_loss_points: FiniteOrNull = Field(
        None, description="Smallest loss that would have been seen; null if there is none."
    )
    floor_same: int | None = Field(
        None, description="Same texts of two server starts of the baseline; null with one start."
    )


def found_in(row: Mapping[str, Any]) -> AnswersFound | None:
    """Answers found in a row of the stage table; None if they were not measured."""
    content = row.get("answers_found")
    return AnswersFound.model_validate_json(content) if isinstance(content, str) else None


def compare_answers(study: Study, plan: Plan, runs_folder: Path) -> StageAnswers:
    """The answers of a plan's candidates beside the baseline's.

    `ServelabError` for a run that is not complete, or whose answers are not those of its seal.
    """
    found = StageAnswers()
    if study.answers is None:
        return found
    own = {run.run_id for run in plan.baseline_answers}
    of_baseline = [
        _read(runs_folder, run) for run in plan.baseline_answers if (runs_folder / run.run_id / "status.json").exists()
    ]
    for position, candidate in enumerate(plan.candidates):
        asked = [_read(runs_folder, run) for run in candidate.answers]
        if not asked:
            continue
        is_baseline = not own.isdisjoint(each.run.run_id for each in asked)
        verdict = _judged(study, of_baseline, asked)
        found.columns[position] = {
            "answers": None if is_baseline else verdict.verdict,
            "answers_note": verdict.why,
            "answers_found": verdict.model_dump_json(),
            "answers_run_ids": [each.run.run_id for each in asked],
        }
        found.accelerator_s[position] = sum(each.accelerator_s for each in asked)
        names = {"study": plan.study, "stage": plan.stage, "position": position, "candidate": candidate.candidate}
        for mine, other in _pairs(asked, of_baseline):
            found.rows += [names | row for row in _rows_of(mine, other)]
    return found


def _judged(study: Study, of_baseline: Sequence[_Asked], asked: Sequence[_Asked]) -> AnswersFound:
    """The verdict on a candidate, or on the baseline, which is compared with itself."""
    wanted = study.answers
    assert wanted is not None
    found = judge(
        {each.run.start: _answers(each) for each in of_baseline},
        {each.run.start: _answers(each) for each in asked},
        wanted.allowed_loss_points,
    )
    names: dict[str, Any] = {"questions": wanted.questions, "allowed_loss_points": wanted.allowed_loss_points}
    if not of_baseline or found.verdict == NOT_MEASURED:
        return AnswersFound(verdict=found.verdict, why=found.why, **names)
    counts = _counts(asked[0], of_baseline[0])
    floor = min((_counts(each, of_baseline[0])["same"] for each in of_baseline[1:]), default=None)
    text = f"{_share(counts['same'], counts['asked'])} the same"
    if floor is not None:
        text += f" ({_share(floor, counts['asked'])} between starts of the baseline)"
    if counts["graded"]:
        right = f"{counts['right']} of {counts['graded']} questions right against {counts['baseline_right']}"
        text += f", {right} (allowed loss {wanted.allowed_loss_points:g} points)"
    if found.verdict == CANNOT_TELL and found.smallest_loss_points is not None:
        text += f"; a loss of {found.smallest_loss_points:.1f} points or more would have been seen"
    elif found.verdict != SAME:
        text += f"; {found.verdict}: {found.why}"
    return AnswersFound(
        verdict=found.verdict,
        why=text,
        floor_same=floor,
        smallest_loss_points=found.smallest_loss_points,
        **names,
        **counts,
    )


def _counts(mine: _Asked, other: _Asked) -> dict[str, int]:
    """Questions, same texts, and right answers of a run and of the baseline's; a missing answer is not right."""
    given = {row["question"]: row for row in mine.rows}
    answered = [row for row in other.rows if row["text"] is not None]
    graded = [row for row in answered if row["expected"] is not None]
    return {
        "asked": len(answered),
        "same": sum(given.get(row["question"], {}).get("text") == row["text"] for row in answered),
        "graded": len(graded),
        "right": sum(row["question"] in given and bool(_right(given[row["question"]])) for row in graded),
        "baseline_right": sum(bool(_right(row)) for row in graded),
    }


def _share(count: int, total: int) -> str:
    return f"{100 * count / total:.0f} %" if total else "none"


def _right(row: Row) -> bool | None:
    """Whether an answer is right; None if the question is not graded, or has no answer."""
    return None if row["text"] is None else grade(row["grader"], row["text"], row["expected"])


def _stopped(row: Row) -> str | None:
    """An answer up to the first of its stops, also of a server that sends them."""
    text: str | None = row["text"]
    for stop in row["stop"] or ():
        text = text and text.partition(stop)[0]
    return text


def _answers(asked: _Asked) -> list[Answer]:
    return [
        Answer(
            question_id=row["question"],
            text=row["text"] or "",
            completion_tokens=row["output_tokens"],
            finish_reason=row["finish_reason"],
            correct=_right(row),
            failure=row["error"],
        )
        for row in asked.rows
    ]


def _read(runs_folder: Path, run: PlannedRun) -> _Asked:
    """A run that was asked."""
    status, tables = read_sealed(runs_folder / run.run_id, {"answers.parquet": schemas.RUN_ANSWERS})
    rows = tables["answers.parquet"].to_pylist() if status.is_ok else []
    return _Asked(run, status.accelerator_s, [{**row, "text": _stopped(row)} for row in rows])


def _pairs(asked: Sequence[_Asked], of_baseline: Sequence[_Asked]) -> list[tuple[_Asked, _Asked]]:
    """Each start beside the baseline's of the same label, else beside its first; none is beside itself."""
    by_start = {each.run.start: each for each in of_baseline}
    pairs = []
    for each in asked:
        others = [by_start.get(each.run.start), *of_baseline]
        other = next((one for one in others if one is not None and one.run.run_id != each.run.run_id), None)
        if other is not None:
            pairs.append((each, other))
    return pairs


def _rows_of(mine: _Asked, other: _Asked) -> Iterator[dict[str, Any]]:
    """Rows of schemas.STAGE_ANSWERS without the candidate's names."""
    theirs = {row["question"]: row for row in other.rows}
    for row in mine.rows:
        if (base := theirs.get(row["question"])) is None:
            continue
        yield {
            "start": mine.run.start,
            "run_id": mine.run.run_id,
            "baseline_run_id": other.run.run_id,
            "question": row["question"],
            "prompt": row["prompt"],
            "expected": row["expected"],
            "baseline_text": base["text"],
            "text": row["text"],
            "baseline_right": _right(base),
            "right": _right(row),
            "edit_share": 1 - SequenceMatcher(None, base["text"] or "", row["text"] or "", autojunk=False).ratio(),
        }
