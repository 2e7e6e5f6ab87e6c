"""Plan of a recorded stage: its candidates and their logs, with the same names as a live stage's plan.

It has the fields of `servelab.study.plan.Plan` that `decide` and `recommend` read. A run is identified by its logs
instead of by what to measure.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from servelab.core.files import JsonFile, JsonPart
from servelab.core.identity import content_id, file_sha256
from servelab.core.run_spec import Strict
from servelab.study.configuration import Configuration
from servelab.study.recorded.commands import changes, read_command
from servelab.study.recorded.study import LOGS, RecordedStudy
from servelab.study.study import COMPARISON


class RecordedSpec(Strict):
    """All that is known of a recorded run; its hash is the run's name."""

    engine: str
    engine_version: str
    model: str
    command: str
    accelerator: str
    accelerators: int
    workload: dict[str, int | float | str | None]
    outcome: str
    logs: dict[str, str]
    """File → sha256, of the logs that are there."""


class RecordedRun(JsonPart):
    """One configuration under one workload."""

    workload: str = Field(description="Workload.")
    run_id: str = Field(description="Run: a hash of its specification.")
    spec: RecordedSpec = Field(description="What is known of it, with the sha256 of its logs.")


class RecordedPlanCandidate(JsonPart):
    """A candidate of a stage."""

    candidate: str = Field(description="Name of the candidate.")
    reference: str = Field(description="In a recorded study: `<stage>/<candidate>` of its file.")
    is_incumbent: bool = Field(description="Whether the stage starts from it.")
    configuration: Configuration
    changes: dict[str, object] = Field(description="What it changes on the incumbent.")
    command: str = Field(description="Serving command of its run on the workload that decides.")
    refused: None = Field(None, description="Null in a recorded study.")
    runs: list[RecordedRun] = Field(description="Its runs.")


class RecordedPlan(JsonFile):
    """`plan.json` of a recorded stage; the first candidate is the incumbent."""

    study: str = Field(description="Study.")
    stage: str = Field(description="Stage.")
    title: str = Field(description="Its heading.")
    applies: bool = Field(True, description="True in a recorded study.")
    reason: str = Field("", description="Empty in a recorded study.")
    candidates: list[RecordedPlanCandidate] = Field(description="Candidates, the incumbent first.")

    def run_ids(self) -> list[str]:
        """Runs of the plan, each once, in order."""
        runs = (run for candidate in self.candidates for run in candidate.runs)
        return list(dict.fromkeys(run.run_id for run in runs))

    def reference_of(self, name: str) -> str:
        """The candidate of that name in this plan, as `<stage>/<candidate>`."""
        return next(each.reference for each in self.candidates if each.candidate == name)


def plan_recorded(study: RecordedStudy, folder: Path, stage_name: str, incumbent: str) -> RecordedPlan:
    """The plan of a stage that starts from `incumbent` (`<stage>/<candidate>`); `comparison` is the last stage.

    `folder` is the study's folder; the logs' content is part of each run's name.
    """
    if stage_name == COMPARISON:
        sides = {"baseline": study.baseline}
        if incumbent != study.baseline:
            sides["winner"] = incumbent
        title, workloads = "Baseline and winner on every workload", list(study.workloads)
    else:
        stage = study.stage(stage_name)
        own = {candidate.title: f"{stage.name}/{candidate.name}" for candidate in stage.candidates}
        name = study.candidates[incumbent].title
        if own.get(name) == incumbent:  # the baseline is one of the first stage's candidates
            sides = {name: incumbent, **{title: each for title, each in own.items() if each != incumbent}}
        else:
            sides = {(incumbent if name in own else name): incumbent, **own}
        title, workloads = stage.title or stage.name, [study.objective.on]
    return RecordedPlan(
        study=study.study,
        stage=stage_name,
        title=title,
        candidates=[_planned(study, folder, name, each, [*sides.values()], workloads) for name, each in sides.items()],
    )


def _planned(
    study: RecordedStudy, folder: Path, name: str, reference: str, sides: list[str], workloads: list[str]
) -> RecordedPlanCandidate:
    """A candidate of a stage; the first of `sides` is the incumbent."""
    candidate, on = study.candidates[reference], study.objective.on
    text = candidate.command_on(on)
    command = read_command(text)
    runs = [each for each in workloads if each == on or each in candidate.logs]
    return RecordedPlanCandidate(
        candidate=name,
        reference=reference,
        is_incumbent=reference == sides[0],
        configuration=Configuration(
            engine=candidate.engine,
            model=candidate.model,
            options={},
            arguments=dict(command.options),
            environment_variables=command.variables,
            accelerators=candidate.accelerators,
        ),
        changes=changes(study.candidates[sides[0]].command_on(on), text),
        command=text,
        runs=[recorded_run(study, folder, reference, workload) for workload in runs],
    )


def recorded_run(study: RecordedStudy, folder: Path, reference: str, workload: str) -> RecordedRun:
    """A candidate (`<stage>/<candidate>`) on a workload, named by all that is known of it, with its logs' content.

    `folder` is the study's folder.
    """
    candidate = study.candidates[reference]
    files = candidate.logs.get(workload, [])
    spec = RecordedSpec(
        engine=candidate.engine,
        engine_version=study.engines[candidate.engine].version,
        model=study.model.variant_id(candidate.model),
        command=candidate.command_on(workload),
        accelerator=study.hardware.accelerator,
        accelerators=candidate.accelerators,
        workload=study.workloads[workload].model_dump(mode="json", exclude={"title", "note", "command"}),
        outcome="not run" if candidate.outcome == "ok" and workload not in candidate.logs else candidate.outcome,
        logs={file: file_sha256(folder / LOGS / file) for file in files if (folder / LOGS / file).is_file()},
    )
    return RecordedRun(workload=workload, run_id=content_id(spec.model_dump(mode="json")), spec=spec)
