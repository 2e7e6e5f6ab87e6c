"""Loads studies and plans of both kinds, live and recorded, for the steps that treat both alike."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter

from servelab.study.plan import Plan
from servelab.study.recorded.plan import RecordedPlan
from servelab.study.recorded.study import RecordedStudy, load_recorded
from servelab.study.study import Study, load_study

SearchedStudy = Study | RecordedStudy
SearchedPlan = Plan | RecordedPlan
_PLAN: TypeAdapter[SearchedPlan] = TypeAdapter(Annotated[RecordedPlan | Plan, Field(union_mode="left_to_right")])
"""A live plan has no `reference`, so it is no recorded one."""


def load_searched(path: Path) -> SearchedStudy:
    """The live study in a file, or the recorded study in a folder; `ConfigError` for any mistake in it."""
    return load_recorded(path) if path.is_dir() else load_study(path)


def read_plan(path: Path) -> SearchedPlan:
    """The plan of a stage, of either kind."""
    return _PLAN.validate_json(path.read_bytes())
