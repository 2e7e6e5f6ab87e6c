"""Studies of both kinds, live and recorded, for what is done with both in the same way: decide, recommend, report."""

from __future__ import annotations

from pathlib import Path

from pydantic import TypeAdapter

from servelab.plan import Plan
from servelab.recorded.plan import RecordedPlan
from servelab.recorded.study import RecordedStudy, load_recorded
from servelab.study import Study, load_study

SearchedStudy = Study | RecordedStudy
SearchedPlan = Plan | RecordedPlan
_PLAN: TypeAdapter[SearchedPlan] = TypeAdapter(SearchedPlan)


def load_searched(path: Path) -> SearchedStudy:
    """The live study in a file, or the recorded one in a folder; `ConfigError` for a mistake in it."""
    return load_recorded(path) if path.is_dir() else load_study(path)


def read_plan(path: Path) -> SearchedPlan:
    """The plan of a stage in a file, of either kind."""
    return _PLAN.validate_json(path.read_bytes())
