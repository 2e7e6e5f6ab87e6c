"""A study's answer for each set of engine versions; earlier answers are kept when an engine is upgraded."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd
from pydantic import Field

from servelab.core.errors import ServelabError
from servelab.core.files import FiniteOrNull, JsonFile
from servelab.core.identity import content_id
from servelab.core.run_spec import EngineSpec
from servelab.measure.run_files import PlaceFacts, RunStatus
from servelab.search.recommended import Recommended
from servelab.study.project import Project


class StudyAnswer(JsonFile):
    """`answers/<versions_id>.json`: what was recommended with these versions."""

    versions: dict[str, EngineSpec] = Field(description="Every engine of the study, with version and environment.")
    question: str = Field(description="Hash of everything else in the study; only equal questions are compared.")
    winner: str = Field(description="Label of the recommended configuration, in the search.")
    value: FiniteOrNull = Field(
        description="Its objective on the workload that decides, in the metric's unit, on the study's basis."
    )
    ci95_low: FiniteOrNull = Field(description="Lower end of its 95 % interval over server starts.")
    ci95_high: FiniteOrNull = Field(description="Upper end of it.")
    measured_at: str = Field(description="When the later of winner and baseline ended, ISO 8601.")
    place: PlaceFacts | None = None
    recommended: Recommended = Field(description="The content of `recommended.json`.")


def study_versions(project: Project) -> dict[str, EngineSpec]:
    """Version and environment of each engine of a study, by the study's name for the engine."""
    return {
        alias: EngineSpec(
            name=project.engine(alias).name,
            version=entry.version,
            runtime=entry.runtime,
            environment_sha256=project.environment_sha256(alias),
        )
        for alias, entry in project.study.engines.items()
    }


def versions_id(versions: Mapping[str, EngineSpec]) -> str:
    """Id of a set of versions."""
    return content_id({alias: engine.model_dump(mode="json") for alias, engine in versions.items()})


def question_id(project: Project) -> str:
    """Hash of a study without its engines' versions and its title, with its workloads and client."""
    study = project.study
    return content_id(
        {
            "study": study.model_dump(mode="json", exclude={"engines": True, "title": True, "hardware": {"found_as"}}),
            "engines": {alias: project.engine(alias).name for alias in study.engines},
            "workloads": {name: project.workload_spec(name).model_dump(mode="json") for name in study.workloads},
            "client": project.client_spec().model_dump(mode="json"),
        }
    )


def make_answer(
    project: Project, recommended: Recommended, winner: str, comparison: pd.DataFrame, runs: Path
) -> StudyAnswer:
    """The answer of a finished study; `comparison` is the table (schemas.STAGE_TABLE) of the reserved last stage.

    `winner` is the label of what the search proposed; it is the answer's only if it is recommended.
    """
    row = comparison[comparison["run_id"] == recommended.run_id].iloc[0]
    ids = (recommended.run_id, recommended.baseline_run_id)
    statuses = [RunStatus.read(runs / run_id / "status.json") for run_id in ids]
    return StudyAnswer(
        versions=study_versions(project),
        question=question_id(project),
        winner=winner if recommended.changed else "baseline",
        value=row["objective_value"],
        ci95_low=row["objective_ci95_low"],
        ci95_high=row["objective_ci95_high"],
        measured_at=max(status.finished_at for status in statuses),
        place=statuses[0].place,
        recommended=recommended,
    )


def read_answers(folder: Path) -> dict[str, StudyAnswer]:
    """All answers of a study by the ids of their versions; `ServelabError` names a file that is not an answer."""
    answers = {}
    for file in sorted(folder.glob("*.json")):
        try:
            answers[file.stem] = StudyAnswer.read(file)
        except ServelabError as error:
            raise ServelabError(f"{file}: not an answer of a study ({error}); remove it") from None
    return answers
