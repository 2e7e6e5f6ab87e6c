"""Plan of a stage: the runs of the incumbent and of every candidate, each with its complete specification.

A plan is a pure function of the study, the stage and the incumbent; it reads and starts nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from servelab.engines import Serve
from servelab.errors import ConfigError
from servelab.identity import run_id
from servelab.metrics import METRICS
from servelab.spec import ArgumentValue, EngineSpec, HardwareSpec, ModelSpec, RunSpec, Strict
from servelab.study import COMPARISON, Candidate, Overrides, Stage

if TYPE_CHECKING:  # most readers of plans make none, and a project takes long to import
    from servelab.project import Project


class Configuration(Strict):
    """A complete serving configuration, in the study's own names for engine and model."""

    engine: str
    model: str
    options: dict[str, ArgumentValue]
    arguments: dict[str, ArgumentValue]
    environment_variables: dict[str, str]
    accelerators: int


class PlannedRun(Strict):
    """One run: a configuration under one workload."""

    workload: str
    run_id: str
    spec: RunSpec


class PlannedCandidate(Strict):
    """A configuration of a stage; `refused` says why it cannot be run at all, and it then has no runs."""

    candidate: str
    is_incumbent: bool
    configuration: Configuration
    changes: dict[str, object]
    command: str
    refused: str | None
    runs: list[PlannedRun]


class Plan(Strict):
    """A stage's plan; the first candidate is the incumbent. A stage that does not apply has no other."""

    study: str
    stage: str
    title: str
    applies: bool
    reason: str
    candidates: list[PlannedCandidate]

    def run_ids(self) -> list[str]:
        """Runs of the plan, each once, in order."""
        return list(dict.fromkeys(run.run_id for candidate in self.candidates for run in candidate.runs))


class Incumbent(Strict):
    """The configuration a stage starts from, and the name it won under."""

    candidate: str
    configuration: Configuration


def baseline(project: Project) -> Incumbent:
    """The study's baseline as the first incumbent; its model is `base` and its accelerators 1 unless it says more."""
    start = Configuration(
        engine=str(project.study.baseline.engine),
        model="base",
        options={},
        arguments={},
        environment_variables={},
        accelerators=1,
    )
    candidate = project.study.baseline
    return Incumbent(candidate=candidate.label or "baseline", configuration=apply(start, candidate))


def apply(incumbent: Configuration, overrides: Overrides) -> Configuration:
    """The incumbent with the overrides on it.

    Another engine drops the incumbent's arguments and environment variables, which are the old engine's own; options
    are everybody's and stay. An option set to null goes back to the default.
    """
    same_engine = overrides.engine in (None, incumbent.engine)
    options = {**incumbent.options, **overrides.options}
    arguments = {**(incumbent.arguments if same_engine else {}), **overrides.arguments}
    variables = {**(incumbent.environment_variables if same_engine else {}), **overrides.environment_variables}
    return Configuration(
        engine=overrides.engine or incumbent.engine,
        model=overrides.model or incumbent.model,
        options={name: value for name, value in options.items() if value is not None},
        arguments={name: value for name, value in arguments.items() if value is not False},
        environment_variables=variables,
        accelerators=overrides.accelerators or incumbent.accelerators,
    )


def plan_stage(project: Project, stage_name: str, incumbent: Incumbent) -> Plan:
    """The plan of a stage that starts from `incumbent`; `comparison` is the reserved last stage."""
    if stage_name == COMPARISON:
        return _plan_comparison(project, incumbent)
    stage = next(stage for stage in project.study.stages if stage.name == stage_name)
    obstacle = _obstacle(project, stage, incumbent.configuration)
    workloads = [project.study.objective.on]
    candidates = [_planned(project, incumbent.candidate, True, incumbent.configuration, {}, workloads)]
    if obstacle is None:
        seen = {_key(incumbent.configuration)}
        for candidate in stage.candidates:
            configuration = apply(incumbent.configuration, candidate)
            if _key(configuration) in seen:  # the winner of an earlier stage may stand here again
                continue
            seen.add(_key(configuration))
            changes = _changes(candidate)
            candidates.append(_planned(project, candidate.name, False, configuration, changes, workloads))
    return Plan(
        study=project.study.study,
        stage=stage.name,
        title=stage.title or stage.name,
        applies=obstacle is None,
        reason=obstacle or "",
        candidates=candidates,
    )


def winner_of(plan: Plan, name: str) -> Incumbent:
    """A plan's candidate of that name, as the next stage's incumbent."""
    chosen = next(candidate for candidate in plan.candidates if candidate.candidate == name)
    return Incumbent(candidate=chosen.candidate, configuration=chosen.configuration)


def _plan_comparison(project: Project, winner: Incumbent) -> Plan:
    workloads = project.study.workloads
    start = baseline(project)
    candidates = [_planned(project, "baseline", True, start.configuration, {}, workloads)]
    if _key(winner.configuration) != _key(start.configuration):
        candidates.append(_planned(project, "winner", False, winner.configuration, {}, workloads))
    return Plan(
        study=project.study.study,
        stage=COMPARISON,
        title="Baseline and winner on every workload",
        applies=True,
        reason="",
        candidates=candidates,
    )


def _planned(
    project: Project,
    name: str,
    is_incumbent: bool,
    configuration: Configuration,
    changes: dict[str, object],
    workloads: list[str],
) -> PlannedCandidate:
    engine = project.engine(configuration.engine)
    model_id = project.study.model.variant_id(configuration.model)
    refused, command, runs = None, "", []
    try:
        entry = project.study.engines[configuration.engine]
        engine.check_options(configuration.options, entry.version)
        command = engine.display_command(
            model_id,
            configuration.options,
            configuration.arguments,
            configuration.environment_variables,
            joined=entry.joined_values,
        )
        engine.command(_trial(configuration, model_id))  # refuses what it cannot serve that way
        specs = {workload: run_spec(project, configuration, workload) for workload in workloads}
        runs = [PlannedRun(workload=name, run_id=run_id(spec), spec=spec) for name, spec in specs.items()]
    except ConfigError as error:
        refused = str(error)
    return PlannedCandidate(
        candidate=name,
        is_incumbent=is_incumbent,
        configuration=configuration,
        changes=changes,
        command=command,
        refused=refused,
        runs=runs,
    )


def _trial(configuration: Configuration, model_id: str) -> Serve:
    """A server like the one that a run starts, but for paths and port."""
    return Serve(
        python=Path("python"),
        model_path=Path("model"),
        model_name=model_id,
        port=0,
        options=configuration.options,
        arguments=configuration.arguments,
        count=configuration.accelerators,
    )


def run_spec(project: Project, configuration: Configuration, workload: str) -> RunSpec:
    """The specification of a configuration's run; `ConfigError` where its engine cannot serve it."""
    study = project.study
    engine = project.engine(configuration.engine)
    quantization = study.model.variant(configuration.model).quantization
    source_format = study.model.variant_format(configuration.model)
    model_format = source_format if source_format in engine.model_formats else engine.model_formats[0]
    return RunSpec(
        engine=EngineSpec(
            name=engine.name,
            version=study.engines[configuration.engine].version,
            runtime=study.engines[configuration.engine].runtime,
            environment_sha256=project.environment_sha256(configuration.engine),
        ),
        model=ModelSpec(
            id=study.model.variant_id(configuration.model),
            variant=configuration.model,
            source=study.model.variant_source(configuration.model),
            format=model_format,
            quantization=quantization,
            conversion=project.conversion(source_format, model_format, quantization, engine.name),
        ),
        options=configuration.options,
        arguments=configuration.arguments,
        environment_variables=configuration.environment_variables,
        hardware=HardwareSpec(
            accelerator=study.hardware.accelerator, device=study.hardware.device, count=configuration.accelerators
        ),
        workload=project.workload_spec(workload),
        objective=study.objective.metric,
        slos=study.objective.slos if METRICS.get(study.objective.metric).needs_slos else {},
        client=project.client_spec(),
        protocol=study.protocol,
    )


def _obstacle(project: Project, stage: Stage, configuration: Configuration) -> str | None:
    """Why a stage does not apply to the incumbent, or None."""
    facts: dict[str, object] = {
        "engine": project.study.engines[configuration.engine].engine or configuration.engine,
        "model": configuration.model,
        "accelerators": configuration.accelerators,
        "hardware.per_node": project.study.hardware.per_node,
        **{f"options.{name}": value for name, value in configuration.options.items()},
    }
    for key, wanted in stage.when.items():
        if facts.get(key) != wanted:
            return f"applies where {key} is {wanted}; the incumbent's is {facts.get(key)}"
    return None


def _key(configuration: Configuration) -> str:
    return configuration.model_dump_json()


def _changes(candidate: Candidate) -> dict[str, object]:
    return candidate.model_dump(mode="json", exclude_defaults=True, exclude={"label"})
