"""Configurations (what is served), loads (what is sent), and how a candidate changes the incumbent."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, cast

from pydantic import Field

from servelab.core.errors import ConfigError
from servelab.core.files import JsonPart
from servelab.core.identity import canonical_json
from servelab.core.run_spec import ArgumentValue, Strict, Variables
from servelab.engines.adapters import Engine
from servelab.engines.balancers import BALANCERS, ROUND_ROBIN
from servelab.engines.endpoint import origin
from servelab.machine.devices import DEVICES
from servelab.study.study import Candidate, Overrides, Study


class Load(Strict):
    """The load of a run: a workload of the study."""

    workload: str


class Configuration(JsonPart):
    """A complete serving configuration, with the study's names for engine and model."""

    engine: str = Field(description="Engine, by the study's name for it.")
    model: str = Field(description="Weights, by the study's name for them.")
    options: dict[str, ArgumentValue] = Field(description="Options of the shared vocabulary (engines.md).")
    arguments: dict[str, ArgumentValue] = Field(description="The engine's own arguments.")
    environment_variables: Variables = Field(description="Environment variables of the server.")
    accelerators: int = Field(description="Accelerators of a deployment: of all its servers together.")
    replicas: int = Field(
        1, exclude_if=lambda value: value == 1, description="Servers of a deployment; missing for one."
    )
    balancer: str = Field(
        ROUND_ROBIN,
        exclude_if=lambda value: value == ROUND_ROBIN,
        description="What spreads requests over them; missing for `round_robin`.",
    )

    @property
    def per_server(self) -> int:
        """Accelerators of each server; servers that share a whole machine have 1."""
        return max(1, self.accelerators // self.replicas)


class Incumbent(Strict):
    """The configuration that a stage starts from, and the name under which it won."""

    candidate: str
    configuration: Configuration


class Variant(NamedTuple):
    """A configuration to compare with the incumbent: its name in tables, and a readable list of its changes."""

    name: str
    configuration: Configuration
    changes: dict[str, object]
    starts: int = 1
    """Server starts on which it is measured."""


def baseline(study: Study) -> Incumbent:
    """The study's baseline as the first incumbent; by default with model `base` on 1 accelerator."""
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
    """Numbers of accelerators that runs of a study may use: those of the baseline and of the candidates."""
    named = {candidate.accelerators for stage in study.stages for candidate in stage.candidates}
    return {baseline(study).configuration.accelerators} | {count for count in named if count is not None}


def apply(incumbent: Configuration, overrides: Overrides) -> Configuration:
    """The incumbent with the overrides applied.

    Another engine drops the incumbent's arguments and environment variables, because they belong to the old engine;
    options are shared by all engines and stay. An option set to null gets its default again. The key of a server that
    already runs belongs to its origin: a candidate with another one names its own key.
    """
    same_engine = overrides.engine in (None, incumbent.engine)
    options = {**incumbent.options, **overrides.options}
    arguments = {**(incumbent.arguments if same_engine else {}), **overrides.arguments}
    before, given = incumbent.arguments, overrides.arguments
    if {"url"} <= before.keys() & given.keys() and origin(str(before["url"])) != origin(str(given["url"])):
        arguments = {name: value for name, value in arguments.items() if name not in _OF_AN_ORIGIN}
        arguments |= overrides.arguments
    variables = {**(incumbent.environment_variables if same_engine else {}), **overrides.environment_variables}
    return Configuration(
        engine=overrides.engine or incumbent.engine,
        model=overrides.model or incumbent.model,
        options={name: value for name, value in options.items() if value is not None},
        arguments={name: value for name, value in arguments.items() if value is not False},
        environment_variables=variables,
        accelerators=overrides.accelerators or incumbent.accelerators,
        replicas=overrides.replicas or incumbent.replicas,
        balancer=overrides.balancer or incumbent.balancer,
    )


_OF_AN_ORIGIN = ("api-key-env", "header-env", "insecure")


def on_whole_node(study: Study, configuration: Configuration) -> Configuration:
    """As the proof serves it: as often as fits on the node if the study asks so."""
    count = study.hardware.per_node // configuration.accelerators if study.proof.fills_node else 1
    if count < 2:
        return configuration
    return configuration.model_copy(update={"accelerators": count * configuration.accelerators, "replicas": count})


def as_searched(study: Study, proved: Configuration) -> Configuration:
    """The configuration of the search that a proof serves; a study that fills nodes there has no other `replicas`."""
    if not study.proof.fills_node:
        return proved
    return proved.model_copy(update={"accelerators": proved.per_server, "replicas": 1})


def check_replicas(study: Study, engine: Engine, configuration: Configuration) -> None:
    """`ConfigError` if the servers of a configuration cannot share its accelerators, or its balancer is unknown."""
    replicas, count = configuration.replicas, configuration.accelerators
    balancer = BALANCERS.get(configuration.balancer)
    if replicas == 1:
        return
    if engine.port_flag is None:
        raise ConfigError(f"engine {engine.name}: `replicas` starts servers by a flag for their port, it has none")
    if study.hardware.nodes > 1:
        raise ConfigError(f"`replicas` are servers of one node, and hardware.nodes is {study.hardware.nodes}")
    if study.client != "servelab" and not balancer.is_process:
        names = ", ".join(each.name for each in BALANCERS if each.is_process)
        raise ConfigError(f"client {study.client} sends to one address; it needs a balancer that has one: {names}")
    if count % replicas and not DEVICES.get(study.hardware.device).is_divided:
        raise ConfigError(
            f"{replicas} servers do not fit on {count} accelerators; `accelerators` counts those of all servers, as in "
            f"`accelerators: {replicas * -(-count // replicas)}`"
        )


def key_of(configuration: Configuration) -> str:
    """A key that is equal for configurations that are the same run under the same load."""
    return canonical_json(configuration.model_dump(mode="json"))


def changes_of(candidate: Candidate) -> dict[str, object]:
    """A readable form of what a candidate changes; `Overrides` parses it."""
    return candidate.model_dump(mode="json", exclude_defaults=True, exclude={"label"})


def difference(before: Configuration, after: Configuration) -> dict[str, object]:
    """A readable form of the settings in which `after` differs from `before`, as `Overrides` has them.

    A setting that it drops is null, and an argument false: a null argument is a flag without a value.
    """
    old, new = dict(before), dict(after)
    found: dict[str, object] = {}
    for name in old:
        if isinstance(old[name], dict):
            missing = False if name == "arguments" else None
            keys = [
                key for key in {**old[name], **new[name]} if old[name].get(key, missing) != new[name].get(key, missing)
            ]
            if keys:
                found[name] = {key: new[name].get(key, missing) for key in keys}
        elif old[name] != new[name]:
            found[name] = new[name]
    return found


KINDS = ("options", "arguments", "environment_variables")


def may_change_answers(before: Configuration, after: Configuration, engine_of: Callable[[str], Engine]) -> bool:
    """Whether `after` has another engine or other weights, or differs in what its adapter says may change answers."""
    if (before.engine, before.model) != (after.engine, after.model):
        return True
    engine, changed = engine_of(after.engine), difference(before, after)
    return any(
        engine.changes_answers(name) for kind in KINDS for name in cast(dict[str, object], changed.get(kind, {}))
    )
