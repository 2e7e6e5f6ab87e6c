"""Specifications of runs: a configuration under one load of its study."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from servelab.core.identity import canonical_json, run_id
from servelab.core.run_spec import EngineSpec, HardwareSpec, ModelSpec, RunSpec, ServedSpec
from servelab.engines.server_to_start import Setting
from servelab.engines.start_rules import hub_models
from servelab.measure.clients import CLIENTS, client_of
from servelab.metrics.definitions import METRICS
from servelab.study.configuration import Configuration, Load, apply, baseline
from servelab.study.plan import ANSWERS
from servelab.study.project import Project
from servelab.study.study import Overrides


def named_spec(
    project: Project, configuration: Configuration, load: Load | None, served: ServedSpec, start: str
) -> tuple[str, RunSpec]:
    """Id and specification of a run; without a load, of the one that is asked the study's questions.

    `ConfigError` if its engine cannot serve the configuration. What runs share is made once for a project.
    """
    used = (configuration.engine, configuration.model, configuration.accelerators, configuration.replicas)
    key, shared = (*used, load.workload if load else None), project.shared_specs
    if key not in shared:
        shared[key] = run_spec(project, configuration, load) if load else answers_spec(project, configuration)
    named = {second for _, second, _ in hub_models(configuration.arguments)}
    seconds = {name: source for name, source in project.study.model.second_sources.items() if name in named}
    settings = {
        "model": shared[key].model.model_copy(update={"second_models": seconds}),
        "options": configuration.options,
        "arguments": configuration.arguments,
        "environment_variables": configuration.environment_variables,
        "served": served,
        "start": start,
    }
    spec = shared[key].model_copy(update=settings)
    return run_id(spec), spec


def run_spec(project: Project, configuration: Configuration, load: Load) -> RunSpec:
    """The specification of a configuration's run; `ConfigError` if its engine cannot serve it."""
    study = project.study
    objective = METRICS.get(study.objective.metric)
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
            accelerator=study.hardware.accelerator,
            device=study.hardware.device,
            count=configuration.accelerators,
            nodes=study.hardware.nodes,
            replicas=configuration.replicas,
        ),
        workload=project.workload_spec(load.workload),
        objective=objective.measured_as or objective.tag,
        slos=study.slos_of(load.workload) if objective.needs_slos else {},
        client=project.client_spec(),
        unless_saturated=study.is_sent_unless_saturated(load.workload),
        capacity=study.capacity_of(load.workload),
        protocol=study.protocol_of(load.workload, configuration.accelerators),
    )


def answers_spec(project: Project, configuration: Configuration) -> RunSpec:
    """The specification of the run that asks a configuration the study's questions; the study must have some."""
    asked = project.study.answers
    assert asked is not None
    like = run_spec(project, configuration, Load(workload=project.study.objective.on))
    return like.model_copy(
        update={
            "workload": project.questions_spec(),
            "objective": ANSWERS,
            "slos": {},
            "client": client_of(CLIENTS.get("servelab")),
            "unless_saturated": False,
            "capacity": None,
            "keeps_answers": True,
            "protocol": asked.protocol(project.study.protocol),
        }
    )


def served_settings(used: Iterable[tuple[Project, str]]) -> list[Setting]:
    """Different settings of studies for engines, by the studies' names for these: baseline and candidates, sorted.

    A candidate is taken as the baseline with its changes. Later stages start from winners that are not known yet, which
    adds no option and no value.
    """
    found = {
        canonical_json([each.options, each.arguments, each.environment_variables]): each
        for project, alias in used
        for each in _configurations(project, alias)
    }
    return [Setting(each.options, each.arguments, each.environment_variables) for _, each in sorted(found.items())]


def _configurations(project: Project, alias: str) -> Iterator[Configuration]:
    start, name = apply(baseline(project.study).configuration, Overrides(engine=alias)), project.engine(alias).name
    yield start
    for stage in project.study.stages:
        is_for = stage.when.get("engine", name) == name
        for candidate in stage.candidates:
            if candidate.engine == alias or (candidate.engine is None and is_for):
                yield apply(start, candidate)
