"""Plan of a stage: the runs of the incumbent and of every candidate, each with its complete specification.

A plan is a pure function of the study, the stage and the incumbent; it reads and starts nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from servelab.engines import Serve
from servelab.errors import ConfigError
from servelab.identity import canonical_json
from servelab.run_specs import RunSpecs
from servelab.spec import ArgumentValue, ProtocolSpec, RoundsSpec, RunSpec, Strict, WorkloadSpec
from servelab.study import COMPARISON, Candidate, Overrides, Stage, Study

if TYPE_CHECKING:  # most readers of plans make none, and a project takes long to import
    from servelab.project import Project

FEWEST_REQUESTS = 4
PART_ROUNDS = 2
"""Rounds of a part of a workload: the fewest that say how far apart rounds are."""
_PYTHON, _MODEL = Path("python"), Path("model")
"""Of a server that is never started."""


class Load(Strict):
    """What is put on a candidate: a workload of the study, or its first requests for fewer rounds."""

    workload: str
    divisor: int = 1
    """1 for all of it; otherwise one of so many parts of its requests."""

    @property
    def name(self) -> str:
        """The workload's name; a part has a name of its own, for its figures are not the workload's."""
        return self.workload if self.divisor == 1 else f"{self.workload}-1of{self.divisor}"

    def requests(self, workload: WorkloadSpec) -> WorkloadSpec:
        """The requests, of those that the whole workload has."""
        if self.divisor == 1:
            return workload
        whole = int(workload.parameters["num_requests"])
        part = max(min(FEWEST_REQUESTS, whole), -(-whole // self.divisor))
        return workload.model_copy(update={"parameters": {**workload.parameters, "num_requests": part}})

    def protocol(self, whole: ProtocolSpec) -> ProtocolSpec:
        """How they are sent; of the same load as before where the whole workload is."""
        if self.divisor == 1:
            return whole
        count = min(PART_ROUNDS, whole.rounds.max)
        rounds = RoundsSpec(min=count, max=count, restart_server=whole.rounds.restart_server)
        return whole.model_copy(
            update={
                "rounds": rounds,
                "settle_requests": whole.settle_requests // self.divisor,
                "ramp_up_s": whole.ramp_up_s / self.divisor,
                "duration_s": whole.duration_s and whole.duration_s / self.divisor,
            }
        )


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
    """`Load.name`: the workload's, or that of a part of it."""
    run_id: str
    spec: RunSpec

    @property
    def load_size(self) -> int:
        """Requests that it sends at most: what the time of runs of different loads is compared by."""
        return int(self.spec.workload.parameters["num_requests"]) * self.spec.protocol.rounds.max


class PlannedCandidate(Strict):
    """A configuration of a stage.

    `refused` says why it cannot be run at all, `not_run` why the search does not run it; either has no runs.
    """

    candidate: str
    is_incumbent: bool
    configuration: Configuration
    changes: dict[str, object]
    command: str
    refused: str | None
    not_run: str | None = None
    runs: list[PlannedRun]


class Plan(Strict):
    """A stage's plan; the first candidate is the incumbent. A stage that does not apply has no other."""

    study: str
    stage: str
    title: str
    applies: bool
    reason: str
    load_divisor: int = 1
    """`Load.divisor` of its runs."""
    candidates: list[PlannedCandidate]

    def run_ids(self) -> list[str]:
        """Runs of the plan, each once, in order."""
        return list(dict.fromkeys(run.run_id for candidate in self.candidates for run in candidate.runs))


class Incumbent(Strict):
    """The configuration a stage starts from, and the name it won under."""

    candidate: str
    configuration: Configuration


class Variant(NamedTuple):
    """A configuration beside the incumbent: its name in tables, and what it changes, for reading."""

    name: str
    configuration: Configuration
    changes: dict[str, object]


def baseline(project: Project) -> Incumbent:
    """The study's baseline as the first incumbent; its model is `base` and its accelerators 1 unless it says more."""
    return start_of(project.study)


def start_of(study: Study) -> Incumbent:
    """The same of a study alone."""
    start = Configuration(
        engine=str(study.baseline.engine),
        model="base",
        options={},
        arguments={},
        environment_variables={},
        accelerators=1,
    )
    return Incumbent(candidate=study.baseline.label or "baseline", configuration=apply(start, study.baseline))


def accelerator_counts(study: Study) -> set[int]:
    """Accelerators that runs of a study may take: those of the baseline, and all that candidates name."""
    named = {candidate.accelerators for stage in study.stages for candidate in stage.candidates}
    return {start_of(study).configuration.accelerators} | {count for count in named if count is not None}


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
        return plan_comparison(project, incumbent)
    stage = next(stage for stage in project.study.stages if stage.name == stage_name)
    variants = [
        Variant(candidate.name, apply(incumbent.configuration, candidate), changes_of(candidate))
        for candidate in stage.candidates
    ]
    obstacle = obstacle_to(project.study, stage, incumbent.configuration)
    return make_plan(project, stage.name, stage.title or stage.name, incumbent, variants, obstacle)


def make_plan(
    project: Project,
    stage: str,
    title: str,
    incumbent: Incumbent,
    variants: Iterable[Variant],
    obstacle: str | None = None,
    divisor: int = 1,
) -> Plan:
    """A plan on the workload that decides: the incumbent, and each variant whose configuration is not there before it.

    An `obstacle` says why the stage does not apply: the incumbent is then alone.
    """
    loads, specs = [Load(workload=project.study.objective.on, divisor=divisor)], RunSpecs(project)
    candidates = [_planned(project, incumbent.candidate, True, incumbent.configuration, {}, loads, specs)]
    seen = {key_of(incumbent.configuration)}
    for variant in variants if obstacle is None else []:
        key = key_of(variant.configuration)
        if key not in seen:  # the winner of an earlier stage may stand here again
            seen.add(key)
            name, configuration, changes = variant
            candidates.append(_planned(project, name, False, configuration, changes, loads, specs))
    return Plan(
        study=project.study.study,
        stage=stage,
        title=title,
        applies=obstacle is None,
        reason=obstacle or "",
        load_divisor=divisor,
        candidates=candidates,
    )


def winner_of(plan: Plan, name: str) -> Incumbent:
    """A plan's candidate of that name, as the next stage's incumbent."""
    chosen = next(candidate for candidate in plan.candidates if candidate.candidate == name)
    return Incumbent(candidate=chosen.candidate, configuration=chosen.configuration)


def plan_comparison(project: Project, winner: Incumbent) -> Plan:
    """The reserved last stage: baseline and winner on every workload."""
    workloads = [Load(workload=workload) for workload in project.study.workloads]
    start, specs = baseline(project), RunSpecs(project)
    candidates = [_planned(project, "baseline", True, start.configuration, {}, workloads, specs)]
    if key_of(winner.configuration) != key_of(start.configuration):
        candidates.append(_planned(project, "winner", False, winner.configuration, {}, workloads, specs))
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
    loads: list[Load],
    specs: RunSpecs,
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
        planned = {load.name: specs(configuration, load) for load in loads}
        runs = [PlannedRun(workload=name, run_id=run_id, spec=spec) for name, (run_id, spec) in planned.items()]
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
        python=_PYTHON,
        model_path=_MODEL,
        model_name=model_id,
        port=0,
        options=configuration.options,
        arguments=configuration.arguments,
        count=configuration.accelerators,
    )


def obstacle_to(study: Study, stage: Stage, configuration: Configuration) -> str | None:
    """Why a stage does not apply to the incumbent, or None."""
    facts: dict[str, object] = {
        "engine": study.engines[configuration.engine].engine or configuration.engine,
        "model": configuration.model,
        "accelerators": configuration.accelerators,
        "hardware.per_node": study.hardware.per_node,
        **{f"options.{name}": value for name, value in configuration.options.items()},
    }
    for key, wanted in stage.when.items():
        if facts.get(key) != wanted:
            return f"applies where {key} is {wanted}; the incumbent's is {facts.get(key)}"
    return None


def key_of(configuration: Configuration) -> str:
    """Equal for configurations that are the same run on the same load."""
    return canonical_json(configuration.model_dump(mode="json"))


def changes_of(candidate: Candidate) -> dict[str, object]:
    """What a candidate changes, for reading; `Overrides` takes it back."""
    return candidate.model_dump(mode="json", exclude_defaults=True, exclude={"label"})


def difference(before: Configuration, after: Configuration) -> dict[str, object]:
    """What one configuration has other than another, for reading; null where it has nothing of it any more."""
    old, new = before.model_dump(mode="json"), after.model_dump(mode="json")
    found: dict[str, object] = {}
    for name in old:
        if isinstance(old[name], dict):
            keys = [key for key in {**old[name], **new[name]} if old[name].get(key) != new[name].get(key)]
            if keys:
                found[name] = {key: new[name].get(key) for key in keys}
        elif old[name] != new[name]:
            found[name] = new[name]
    return found
