"""Checks of a recorded run: what its command and its logs can tell without the records of single requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from servelab.readers import Block
from servelab.recorded.commands import read_command
from servelab.recorded.study import RecordedCandidate, RecordedStudy
from servelab.validity import Saw, invalid, not_applicable, ok, suspect


class Recorded(NamedTuple):
    """What the checks look at."""

    study: RecordedStudy
    candidate: RecordedCandidate
    blocks: Sequence[Block]
    """The run's results, one a round."""


def served_model(run: Recorded) -> Saw:
    """Whether the command serves the study's model, or a variant of it by its name."""
    served = read_command(run.candidate.command).model
    if served is None:
        return not_applicable("the command names no model")
    if not run.study.model.is_of_model(served):
        return invalid(f"the command serves {served}, the study is of {run.study.model.id}")
    return ok(f"the command serves {served}")


def serving_engine(run: Recorded) -> Saw:
    """Whether the command begins as its engine's commands do."""
    engine = run.study.engines[run.candidate.engine]
    if engine.program is None:
        return not_applicable("nothing is known of how the engine's commands begin")
    program = engine.program.split()
    begins = read_command(run.candidate.command).words[: len(program)]
    if list(begins) != program:
        return suspect(f"the command begins with `{' '.join(begins)}`, {engine.title or run.candidate.engine}'s do not")
    return ok(f"the command begins with `{engine.program}`")


CHECKS: dict[str, tuple[Callable[[Recorded], Saw], str]] = {
    "served model": (served_model, "Ask who made the log which model it was; add another name of it to `model.names`."),
    "serving engine": (serving_engine, "Ask who made the log which engine it was, and correct `engine` or `command`."),
}
"""Check → what looks, and what to do about it."""


def check_recorded(run: Recorded) -> list[dict[str, Any]]:
    """A row of `schemas.CHECKS` for each check, without study, run_id and workload."""
    rows = []
    for name, (look, action) in CHECKS.items():
        saw = look(run)
        failed = saw.level in ("suspect", "invalid")
        rows.append({"check": name, "level": saw.level, "saw": saw.text, "action": action if failed else None})
    return rows
