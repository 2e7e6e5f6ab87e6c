"""Plan of a recorded stage: its candidates and the logs of each, with the names that a live stage's plan has.

`study`, `stage`, `title`, `applies`, `reason`, `candidates` and what those hold are what `decide` and `recommend` read
of `servelab.plan.Plan`; a run is identified by its logs instead of by what is to be measured.
"""

from __future__ import annotations

from pathlib import Path

from servelab.identity import content_id, file_sha256
from servelab.plan import Configuration
from servelab.recorded.commands import changes, read_command
from servelab.recorded.study import LOGS, RecordedStudy
from servelab.spec import Strict
from servelab.study import COMPARISON


class RecordedSpec(Strict):
    """What a recorded run was, as far as anyone can say: its hash is the run's name."""

    engine: str
    engine_version: str
    model: str
    command: str
    accelerator: str
    accelerators: int
    workload: dict[str, int | float | str | None]
    outcome: str
    logs: dict[str, str]
    """File → sha256."""


class RecordedRun(Strict):
    """One configuration under one workload."""

    workload: str
    run_id: str
    spec: RecordedSpec


class RecordedPlanCandidate(Strict):
    """A candidate of a stage; `reference` is `<stage>/<candidate>`."""

    candidate: str
    reference: str
    is_incumbent: bool
    configuration: Configuration
    changes: dict[str, object]
    command: str
    refused: None = None
    runs: list[RecordedRun]


class RecordedPlan(Strict):
    """A stage's plan; the first candidate is the incumbent."""

    study: str
    stage: str
    title: str
    applies: bool = True
    reason: str = ""
    candidates: list[RecordedPlanCandidate]

    def run_ids(self) -> list[str]:
        """Runs of the plan, each once, in order."""
        return list(dict.fromkeys(run.run_id for candidate in self.candidates for run in candidate.runs))

    def reference_of(self, name: str) -> str:
        """The candidate of that name in this plan, as `<stage>/<candidate>`."""
        return next(each.reference for each in self.candidates if each.candidate == name)


def plan_recorded(study: RecordedStudy, folder: Path, stage_name: str, incumbent: str) -> RecordedPlan:
    """The plan of a stage that starts from `incumbent` (`<stage>/<candidate>`); `comparison` is the reserved last one.

    `folder` is the study's; the logs' content is part of each run's name.
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
        candidates=[
            _planned(study, folder, name, reference, position == 0, next(iter(sides.values())), workloads)
            for position, (name, reference) in enumerate(sides.items())
        ],
    )


def _planned(
    study: RecordedStudy,
    folder: Path,
    name: str,
    reference: str,
    is_incumbent: bool,
    incumbent: str,
    workloads: list[str],
) -> RecordedPlanCandidate:
    candidate = study.candidates[reference]
    command = read_command(candidate.command)
    tried = workloads if candidate.outcome == "ok" else workloads[:1]
    return RecordedPlanCandidate(
        candidate=name,
        reference=reference,
        is_incumbent=is_incumbent,
        configuration=Configuration(
            engine=candidate.engine,
            model=candidate.model,
            options={},
            arguments=dict(command.options),
            environment_variables=command.variables,
            accelerators=candidate.accelerators,
        ),
        changes=changes(study.candidates[incumbent].command, candidate.command),
        command=candidate.command,
        runs=[
            recorded_run(study, folder, reference, workload)
            for workload in tried
            if candidate.outcome != "ok" or workload in candidate.logs
        ],
    )


def recorded_run(study: RecordedStudy, folder: Path, reference: str, workload: str) -> RecordedRun:
    """A candidate (`<stage>/<candidate>`) on a workload, named by all that is known of it, its logs' content included.

    `folder` is the study's.
    """
    candidate = study.candidates[reference]
    files = candidate.logs.get(workload, [])
    spec = RecordedSpec(
        engine=candidate.engine,
        engine_version=study.engines[candidate.engine].version,
        model=study.model.variant_id(candidate.model),
        command=candidate.command,
        accelerator=study.hardware.accelerator,
        accelerators=candidate.accelerators,
        workload=study.workloads[workload].model_dump(mode="json", exclude={"title", "note", "command"}),
        outcome=candidate.outcome,
        logs={file: file_sha256(folder / LOGS / file) for file in files},
    )
    return RecordedRun(workload=workload, run_id=content_id(spec.model_dump(mode="json")), spec=spec)
