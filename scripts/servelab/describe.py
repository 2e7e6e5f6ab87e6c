"""What is told of a study of either kind: titles of its workloads, and the content of `study.json`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from servelab.project import load_project
from servelab.recorded.study import RecordedCandidate, RecordedStage, load_recorded
from servelab.search import strategy_of
from servelab.searched import SearchedStudy
from servelab.study import Stage, Study


def workload_titles(path: Path, root: Path = Path()) -> dict[str, str]:
    """Title of each workload of the study at `path`; `root` is the folder that config/ and envs/ lie in."""
    if path.is_dir():
        return {name: workload.title for name, workload in load_recorded(path).workloads.items()}
    project = load_project(path, root)
    return {name: project.workloads[name].title for name in project.study.workloads}


def describe(study: SearchedStudy, titles: dict[str, str]) -> dict[str, Any]:
    """The content of `study.json`: the study, with titles for its workloads and an outline of its stages."""
    content = study.model_dump(mode="json", exclude={"claims"})
    content["workloads"] = titles
    content["stages"] = _outlines(study)
    return content


def _outlines(study: SearchedStudy) -> list[dict[str, Any]]:
    """Name, title and candidates of each stage that decides, as the search has them."""
    if isinstance(study, Study):
        outlines = strategy_of(study).outlines(study)
        return [{"name": each.name, "title": each.title, "candidates": each.candidates} for each in outlines]
    return [
        {"name": stage.name, "title": stage.title or stage.name, "candidates": candidate_labels(stage)}
        for stage in study.stages
    ]


def candidate_labels(stage: Stage | RecordedStage) -> list[str]:
    """Names of a stage's candidates in tables."""
    return [each.title if isinstance(each, RecordedCandidate) else each.name for each in stage.candidates]
