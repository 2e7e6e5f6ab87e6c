"""The summary of a study of either kind, and the titles of its workloads."""

from __future__ import annotations

from pathlib import Path

from servelab.search.project import load_project
from servelab.search.strategies import strategy_of
from servelab.study.kinds import SearchedStudy
from servelab.study.recorded.study import RecordedCandidate, RecordedStage, load_recorded
from servelab.study.study import Stage, Study
from servelab.study.summary import StageOutline, StudySummary


def workload_titles(path: Path, root: Path = Path()) -> dict[str, str]:
    """Title of each workload of the study at `path`; `root` is the folder that contains config/ and envs/."""
    if path.is_dir():
        return {name: workload.title for name, workload in load_recorded(path).workloads.items()}
    project = load_project(path, root)
    return {name: project.workloads[name].title for name in project.study.workloads}


def describe(study: SearchedStudy, titles: dict[str, str]) -> StudySummary:
    """The study, with titles for its workloads and an outline of its stages."""
    content = study.model_dump(mode="json", exclude={"claims"})
    if isinstance(study, Study):
        content["loads"] = {name: own for name, each in study.workloads.items() if (own := each.own)}
    content["curves"] = {name: _curve(study, points) for name, points in study.curves.items()}
    return StudySummary.model_validate(content | {"workloads": titles, "stages": _outlines(study)})


def _curve(study: SearchedStudy, points: list[str]) -> dict[str, object]:
    """A `CurveOutline` as data."""
    load = study.workloads[points[0]].load
    assert load is not None
    return {"of": load.of, "points": {name: study.level_of(name) for name in points}}


def _outlines(study: SearchedStudy) -> list[StageOutline]:
    """Each stage that decides, in the order of the search."""
    if isinstance(study, Study):
        outlines = strategy_of(study).outlines(study)
        return [StageOutline(name=each.name, title=each.title, candidates=each.candidates) for each in outlines]
    return [
        StageOutline(name=stage.name, title=stage.title or stage.name, candidates=candidate_labels(stage))
        for stage in study.stages
    ]


def candidate_labels(stage: Stage | RecordedStage) -> list[str]:
    """Names of a stage's candidates in tables."""
    return [each.title if isinstance(each, RecordedCandidate) else each.name for each in stage.candidates]
