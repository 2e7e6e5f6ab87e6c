"""A study's answer under each set of versions of its engines, kept so that an upgrade overwrites none without trace."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from servelab.errors import ServelabError
from servelab.identity import content_id
from servelab.spec import EngineSpec, Strict

if TYPE_CHECKING:  # what the workflow reads at its start imports no tables
    import pandas as pd

    from servelab.project import Project


class Answer(Strict):
    """`answers/<versions_id>.json`: what was recommended under these versions."""

    versions: dict[str, EngineSpec]
    """By the study's names for its engines."""
    question: str
    """Hash of everything else that the study asks; answers to different questions are not compared."""
    winner: str
    """Label of the winner."""
    value: float | None
    """The winner's objective on the workload that decides, on the study's basis."""
    ci95_low: float | None
    ci95_high: float | None
    measured_at: str
    """When the later of winner and baseline was measured there, ISO 8601."""
    recommended: dict[str, Any]
    """`recommended.json`."""


def study_versions(project: Project) -> dict[str, EngineSpec]:
    """Version and environment of each engine of a study, by the study's name for it."""
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
    """Name of a set of versions."""
    return content_id({alias: engine.model_dump(mode="json") for alias, engine in versions.items()})


def question_id(project: Project) -> str:
    """Hash of what a study asks: all of it but its engines' versions and its title, with workloads and client."""
    study = project.study
    return content_id(
        {
            "study": study.model_dump(mode="json", exclude={"engines", "title"}),
            "engines": {alias: project.engine(alias).name for alias in study.engines},
            "workloads": {name: project.workload_spec(name).model_dump(mode="json") for name in study.workloads},
            "client": project.client_spec().model_dump(mode="json"),
        }
    )


def make_answer(
    project: Project, recommended: dict[str, Any], winner: str, comparison: pd.DataFrame, runs: Path
) -> Answer:
    """The answer of a finished study; `comparison` has rows of schemas.STAGE_TABLE of the reserved last stage."""
    row = comparison[comparison["run_id"] == recommended["run_id"]].iloc[0]
    value, low, high = (
        None if row[name] != row[name] else float(row[name])  # NaN is not equal to itself
        for name in ("objective_value", "objective_ci95_low", "objective_ci95_high")
    )
    statuses = [runs / recommended[side] / "status.json" for side in ("run_id", "baseline_run_id")]
    return Answer(
        versions=study_versions(project),
        question=question_id(project),
        winner=winner,
        value=value,
        ci95_low=low,
        ci95_high=high,
        measured_at=max(str(json.loads(status.read_bytes())["finished_at"]) for status in statuses),
        recommended=recommended,
    )


def read_answers(folder: Path) -> dict[str, Answer]:
    """All answers of a study by their sets of versions; `ServelabError` names a file that is none."""
    answers = {}
    for file in sorted(folder.glob("*.json")):
        try:
            answers[file.stem] = Answer.model_validate_json(file.read_bytes())
        except (OSError, ValidationError) as error:
            raise ServelabError(f"{file}: not an answer of a study ({error}); remove it") from None
    return answers
