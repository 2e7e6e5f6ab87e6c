"""Reads a study with everything it refers to: every name is checked here, and all that can be known before a run."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from pydantic import ValidationError

from servelab.answers.sets import QUESTION_SETS
from servelab.assets.datasets import load_datasets
from servelab.assets.workloads import WORKLOADS, load_workloads
from servelab.core.errors import ConfigError
from servelab.core.files import own_or_shipped
from servelab.core.identity import canonical_json
from servelab.core.registry import nearest
from servelab.core.run_spec import CapacitySpec, ProtocolSpec
from servelab.engines.adapters import ENGINES, Engine
from servelab.engines.balancers import BALANCERS
from servelab.engines.endpoint import NOT_KNOWN
from servelab.engines.options import lacks_value
from servelab.engines.runtimes import RUNTIMES
from servelab.machine.devices import DEVICES
from servelab.machine.devices.cpu import RemoteDevices
from servelab.measure.clients import CLIENTS
from servelab.metrics.definitions import METRICS, slo_metrics
from servelab.metrics.objective import PERCENTILES, allowed_share, observations_needed
from servelab.metrics.timeline import LENGTH_DEPENDENT
from servelab.study.configuration import Configuration, apply, baseline, check_replicas, on_whole_node
from servelab.study.project import Project, check_name, client_release, error_at
from servelab.study.study import AFTER_SEARCH, RECHECK, Candidate, Overrides, Study, load_study


def wrong_place(study: Study, alias: str, engine: Engine) -> tuple[str, str] | None:
    """Key and reason of what does not fit an engine of the study; None if all does."""
    entry, device = study.engines[alias], study.hardware.device
    if engine.already_runs != (entry.runtime == "none"):
        fix = "`runtime: none`, as nothing starts it" if engine.already_runs else "another; nothing would start it"
        return f"engines.{alias}.runtime", f"engine {engine.name} needs {fix}"
    if engine.already_runs and entry.version != NOT_KNOWN:
        fix = f"write `{NOT_KNOWN}`; the argument `state` is for your own name of what runs there"
        return f"engines.{alias}.version", f"that of a server that already runs is not known: {fix}"
    if isinstance(DEVICES.get(device), RemoteDevices) and not engine.already_runs:
        return "hardware.device", f"engine {engine.name} is started on this machine, so its device is not `{device}`"
    if study.hardware.nodes == 1:
        return None
    try:
        engine.check_nodes(entry.version)
    except ConfigError as error:
        return "hardware.nodes", str(error)
    if not RUNTIMES.get(entry.runtime).on_host:
        wrong = f"`{entry.runtime}` starts a server on one node only, and hardware.nodes is {study.hardware.nodes}"
        return f"engines.{alias}.runtime", f"{wrong}; use `venv` or `host`, also inside a job's own container"
    return None


EngineOf = Callable[[str], Engine]
"""The study's name of an engine → the engine."""


def refused_settings(study: Study, engine_of: EngineOf) -> Iterator[tuple[str, str]]:
    """(key, why with the fix) for each setting that Servelab sets itself, or that is given twice under two names.

    A candidate is looked at by itself, and with the baseline's settings if it may have them.
    """
    spelled: dict[tuple[str, str], str] = {}
    starts = {alias: _starts(study, alias) for alias in study.engines}
    for key, candidate, aliases in _candidates(study, engine_of):
        for alias in aliases:
            yield from _refused(key, candidate.model_copy(update={"engine": alias}), starts[alias], engine_of(alias))
            for name in candidate.arguments:
                first = spelled.setdefault((alias, engine_of(alias).names.of(name)), name)
                if first != name:
                    yield f"{key}.arguments.{name}", f"is `{first}` elsewhere in this study; use one name for it"


def _candidates(study: Study, engine_of: EngineOf) -> Iterator[tuple[str, Candidate, list[str]]]:
    """The baseline and all candidates: key, candidate, engines that it may run on by the study's names."""
    yield "baseline", study.baseline, [str(study.baseline.engine)]
    for position, stage in enumerate(study.stages):
        wanted = stage.when.get("engine")
        possible = [alias for alias in study.engines if wanted in (None, engine_of(alias).name)]
        for number, candidate in enumerate(stage.candidates):
            key = f"stages.{position} ({stage.name}).candidates.{number}"
            yield key, candidate, [candidate.engine] if candidate.engine else possible


def _starts(study: Study, alias: str) -> list[Configuration]:
    """Settings that a candidate on an engine of the study begins with: none, and the baseline's on its own engine."""
    first = baseline(study).configuration
    alone = apply(first, Overrides(engine=alias)).model_copy(
        update={"options": {}, "arguments": {}, "environment_variables": {}}
    )
    return [alone, first] if alias == study.baseline.engine else [alone]


def _refused(
    key: str, candidate: Candidate, starts: Iterable[Configuration], engine: Engine
) -> Iterator[tuple[str, str]]:
    """The first wrong setting of a candidate on its engine."""
    for start in starts:
        whole = apply(start, candidate)
        options = {name: value for name, value in whole.options.items() if name in engine.options}
        try:
            arguments = engine.refused_arguments(options, whole.arguments)
        except ConfigError:  # options that contradict each other: such a candidate is refused where it is planned
            arguments = {}
        lacking = {name: lacks_value(engine.option_of(name), value) for name, value in whole.arguments.items()}
        arguments |= {name: why for name, why in lacking.items() if why}
        for kind, refused in (
            ("arguments", arguments),
            ("environment_variables", engine.refused_variables(options, whole.environment_variables)),
        ):
            for name, why in refused.items():
                with_baseline = "" if name in getattr(candidate, kind) else " (the baseline has it)"
                yield f"{key}.{kind}.{name}", f"{why}{with_baseline} (engine {engine.name})"
                return


def read_project(file: Path, root: Path) -> Project:
    """The study in a file with everything it refers to; `ConfigError` for any mistake outside its search.

    `servelab.search.project.load_project` checks the search too.
    """
    study = load_study(file)
    datasets = load_datasets(own_or_shipped(root, "config/datasets.yaml"))
    known = load_workloads(own_or_shipped(root, "config/workloads.yaml"), datasets)
    workloads = {}
    for name, entry in study.workloads.items():
        if entry.of not in known:
            key = "workloads" if entry.of == name else f"workloads.{name}.workload"
            raise ConfigError(f"{file}: {key}: unknown workload `{entry.of}`{nearest(entry.of, list(known))}")
        workload = known[entry.of]  # sent under the study's name, with as many requests
        number = {} if entry.num_requests is None else {"num_requests": entry.num_requests}
        title, parameters = entry.titled(workload.title), workload.parameters | number
        given = {"name": entry.name, "title": title, "parameters": parameters}
        workloads[name] = workload.model_copy(update=given)
    project = Project(study=study, file=file, root=root, workloads=workloads, datasets=datasets)
    _check(project)
    return project


def _check(project: Project) -> None:
    study = project.study
    check_name(project, "hardware.device", study.hardware.device, DEVICES.names(), "device")
    check_name(project, "client", study.client, CLIENTS.names(), "client")
    if points := study.curves.get(study.objective.on):
        which = f"name the point that decides, one of {', '.join(points)}"
        raise error_at(project, "objective.on", f"`{study.objective.on}` is a curve of rates; {which}")
    check_name(project, "objective.on", study.objective.on, list(study.workloads), "workload of this study")
    _check_objective(project)
    _check_loads(project)
    _check_client(project)
    _check_lengths(project)
    _check_percentiles(project)
    if study.answers is not None:
        check_name(project, "answers.questions", study.answers.questions, QUESTION_SETS.names(), "question set")
        if (dataset := project.questions_dataset) is not None:
            check_name(project, "answers.dataset", dataset, list(project.datasets), "dataset")
    for name, variant in study.model.variants.items():
        if name == "base":
            raise error_at(project, "model.variants.base", "`base` is the model itself; take another name")
        if variant.quantization is not None and study.model.format != "gguf":
            raise error_at(project, f"model.variants.{name}.quantization", "only a model in gguf can be quantised here")
    for alias in study.engines:
        _check_engine(project, alias)
    if study.baseline.engine is None:
        raise error_at(project, "baseline.engine", f"`engine` is missing; one of {', '.join(study.engines)}")
    _check_candidate(project, "baseline", study.baseline)
    names: set[str] = set()
    for position, stage in enumerate(study.stages):
        key = f"stages.{position} ({stage.name})"
        is_reserved = stage.name in (*AFTER_SEARCH, RECHECK)
        if stage.name in names or is_reserved:
            raise error_at(project, key, "this name is reserved" if is_reserved else "another stage has this name")
        names.add(stage.name)
        _check_candidates(project, key, stage.candidates)
    for key, why in refused_settings(study, project.engine):
        raise error_at(project, key, why)


def _check_loads(project: Project) -> None:
    study, seen = project.study, dict[str, str]()
    for name, entry in study.workloads.items():
        try:
            protocol = study.protocol_of(name)
        except ValidationError as error:
            wrong = error.errors(include_url=False)[0]["msg"].removeprefix("Value error, ")
            raise error_at(project, f"workloads.{name}", f"with the study's `protocol`: {wrong}") from None
        if protocol.arrivals == "replay" and not WORKLOADS.get(project.workloads[name].kind).has_arrival_times:
            key = "protocol.arrivals" if entry.arrivals is None else f"workloads.{name}.arrivals"
            wrong = f"workload {name} has no arrival times to replay; use a workload of kind `trace`"
            raise error_at(project, key, wrong)
        number = int(project.workloads[name].parameters["num_requests"])
        if protocol.settle_requests >= number:
            raise error_at(project, "protocol.settle_requests", f"leaves none of {name}, {number:,} requests")
        if (protocol.duration_s or 0) >= protocol.round_timeout_s:
            raise error_at(project, "protocol.round_timeout_s", f"raise it above the `duration_s` of workload {name}")
        capacity = entry.capacity and entry.capacity.model_dump(mode="json")
        content = [
            project.workload_spec(name).model_dump(mode="json"),
            protocol.model_dump(mode="json", exclude={"rounds"}),
            capacity,
        ]
        sent = canonical_json(content)
        if sent in seen:
            raise error_at(project, f"workloads.{name}", f"sends the same load as `{seen[sent]}`; remove one")
        seen[sent] = name
        if entry.capacity is not None:
            _check_capacity(project, name, entry.capacity, protocol)


def _check_capacity(project: Project, name: str, capacity: CapacitySpec, protocol: ProtocolSpec) -> None:
    key = f"workloads.{name}.load.capacity"
    better = [metric.tag for metric in METRICS if metric.higher_is_better is not None and metric.of_requests]
    if protocol.arrivals == "replay":
        raise error_at(project, key, "`arrivals: replay` has rates of its own, which cannot be raised")
    sent = int(project.workloads[name].parameters["num_requests"]) - protocol.settle_requests
    for metric, limits in capacity.slos.items():
        check_name(project, f"{key}.slos", metric, better, "latency")
        for statistic in PERCENTILES.keys() & limits.keys():
            needed = math.ceil(round(1 / (1 - PERCENTILES[statistic]), 6))
            if sent < needed:
                wrong = f"the {statistic} of {sent:,} requests is their largest value"
                raise error_at(project, f"{key}.slos.{metric}", f"{wrong}; send {needed:,} or more, or limit `p90`")


def _check_objective(project: Project) -> None:
    objective = project.study.objective
    if project.study.proof.fills_node and objective.metric_and_basis[1] != "node":
        raise error_at(project, "proof.fills_node", "is for `objective.per: node` and a metric that is a rate")
    better = [metric.tag for metric in METRICS if metric.higher_is_better is not None]
    deciding = {"pareto" if objective.pareto else "metric": objective.metric}
    deciding |= {"pareto (second)": objective.second.metric} if objective.second else {}
    for key, metric in deciding.items():
        check_name(project, f"objective.{key}", metric, better, "metric with a better direction")
    for metric, limits in objective.constraints.items():
        check_name(project, "objective.constraints", metric, better, "metric with a better direction")
        if not limits:
            raise error_at(project, f"objective.constraints.{metric}", "names no statistic; write one, as `{mean: 50}`")
    own = {f"workloads.{name}.slos": entry.slos or {} for name, entry in project.study.workloads.items()}
    for where, slos in {"objective.slos": objective.slos, **own}.items():
        for metric in slos:
            check_name(project, where, metric, slo_metrics(), "metric of single requests")
    for key, metric in [*deciding.items(), *(("constraints", each) for each in objective.constraints)]:
        measured = (objective.on,) if key == "constraints" else project.study.workloads
        without = next((name for name in measured if not project.study.slos_of(name)), None)
        if METRICS.get(metric).needs_slos and without is not None:
            example = "`slos: {ttft_ms: 500, tpot_ms: 50}`"
            of = f" on workload {without}" if any(own.values()) else ""
            raise error_at(project, f"objective.{key}", f"{metric} needs limits{of}; add {example}")
        if metric.startswith("capacity_") and any(
            (capacity := project.study.capacity_of(name)) is None
            or (metric == "capacity_in_flight" and capacity.of != "max_concurrency")
            for name in measured
        ):
            example = "`load: {capacity: {of: max_concurrency, slos: {ttft_ms: {p99: 2000}}}}`"
            raise error_at(project, f"objective.{key}", f"{metric} needs it on every workload; write {example}")
        if METRICS.get(metric).needs_price and project.study.hardware.price_per_accelerator_hour is None:
            raise error_at(project, f"objective.{key}", f"{metric} needs `hardware.price_per_accelerator_hour`")


def _check_lengths(project: Project) -> None:
    """Refuses to compare answers of different lengths by a figure that depends on their lengths."""
    objective = project.study.objective
    natural = [name for name in project.study.workloads if project.has_natural_stops(name)]
    compared = {"metric": [each.metric for each in (objective, objective.second) if natural and each]}
    compared["constraints"] = list(objective.constraints) if objective.on in natural else []
    for key, tags in compared.items():
        for tag in tags:
            if tag in LENGTH_DEPENDENT:
                of = "objective.metric" if key == "metric" else f"objective.constraints.{tag}"
                why = f"`{tag}` depends on the lengths of the answers, which end by themselves on workload {natural[0]}"
                raise error_at(project, of, f"{why}; use `{LENGTH_DEPENDENT[tag]}`, which is per token")


def _check_percentiles(project: Project) -> None:
    """Refuses a limit on a percentile that a run has too few requests for, even if none is beyond the limit."""
    objective = project.study.objective
    protocol = project.study.protocol_of(objective.on)
    sent = int(project.workloads[objective.on].parameters["num_requests"]) - protocol.settle_requests
    if protocol.duration_s is not None and protocol.request_rate != "inf":
        sent = int(min(sent, protocol.duration_s * protocol.request_rate))
    rounds = protocol.rounds
    for metric, limits in objective.constraints.items():
        of, is_floor = METRICS.get(metric), bool(METRICS.get(metric).higher_is_better)
        for statistic in PERCENTILES.keys() & limits.keys():
            needed = observations_needed(allowed_share(statistic, is_floor=is_floor))
            key = f"objective.constraints.{metric}.{statistic}"
            if of.is_latency and sent * rounds < needed:
                wrong = f"{sent:,} requests of {objective.on} × {rounds} rounds are {sent * rounds:,}"
                fix = f"use a workload of {-(-needed // rounds):,} requests, more `protocol.rounds`, or limit `mean`"
                raise error_at(project, key, f"cannot be shown with fewer than {needed:,} requests, and {wrong}; {fix}")
            if not of.is_latency and rounds < needed:
                wrong = f"it has one value per round, and `protocol.rounds` is {rounds}"
                fix = "raise it, or limit `mean`"
                raise error_at(project, key, f"cannot be shown with fewer than {needed:,} rounds: {wrong}; {fix}")


def _check_candidates(project: Project, key: str, candidates: list[Candidate]) -> None:
    seen: dict[str, int] = {}
    labels: dict[str, int] = {}
    for position, candidate in enumerate(candidates):
        here = f"{key}.candidates.{position}"
        content = candidate.model_dump_json(exclude={"label"}, exclude_defaults=True)
        if content == "{}":
            raise error_at(project, here, "does not change the incumbent; set an engine, a model or an option")
        if content in seen:
            raise error_at(project, here, f"the same as candidate {seen[content]}; remove one")
        if candidate.name in labels:
            raise error_at(project, here, f"has the label of candidate {labels[candidate.name]}, `{candidate.name}`")
        seen[content], labels[candidate.name] = position, position
        _check_candidate(project, here, candidate)


def _check_candidate(project: Project, key: str, candidate: Candidate) -> None:
    study = project.study
    if candidate.engine is not None:
        check_name(project, f"{key}.engine", candidate.engine, list(study.engines), "engine of this study")
    if candidate.model is not None:
        check_name(project, f"{key}.model", candidate.model, ["base", *study.model.variants], "model variant")
    _check_accelerators(project, key, candidate)
    aliases = [candidate.engine] if candidate.engine else list(study.engines)
    try:
        _check_options(candidate, [(project.engine(alias), study.engines[alias].version) for alias in aliases])
    except ConfigError as error:
        raise error_at(project, f"{key}.options", str(error)) from None


def _check_accelerators(project: Project, key: str, candidate: Candidate) -> None:
    hardware, is_baseline = project.study.hardware, key == "baseline"
    count = candidate.accelerators or (1 if is_baseline else None)
    if candidate.balancer is not None:
        check_name(project, f"{key}.balancer", candidate.balancer, BALANCERS.names(), "balancer")
    if count is None:
        return
    if candidate.replicas and project.study.proof.fills_node:
        raise error_at(project, f"{key}.replicas", "`proof.fills_node` starts as many servers as fit; leave it out")
    if is_baseline or candidate.replicas:
        whole = on_whole_node(project.study, apply(baseline(project.study).configuration, candidate))
        try:
            check_replicas(project.study, project.engine(whole.engine), whole)
        except ConfigError as error:
            raise error_at(project, f"{key}.replicas", str(error)) from None
    if count % hardware.nodes:
        wrong = f"{count} is no multiple of hardware.nodes, {hardware.nodes}: each node has as many"
    elif count > hardware.per_node * hardware.nodes:
        nodes = f" × {hardware.nodes} nodes" if hardware.nodes > 1 else ""
        wrong = f"{count} is more than the {hardware.per_node} of hardware.per_node{nodes}"
    else:
        return
    raise error_at(project, f"{key}.accelerators", wrong)


def _check_options(candidate: Candidate, engines: list[tuple[Engine, str]]) -> None:
    """Raises `ConfigError` for an option that none of the candidate's possible engines has."""
    for name, value in candidate.options.items():
        refusals = []
        for engine, version in engines:
            try:
                engine.check_options({name: value}, version)
            except ConfigError as error:
                refusals.append(error)
        if len(refusals) == len(engines):
            raise min(refusals, key=lambda error: len(str(error)))  # one that knows the flag, where there is one


def _check_client(project: Project) -> None:
    client, lock = CLIENTS.get(project.study.client), project.client_lock
    if lock and not lock.exists():
        raise error_at(project, "client", f"{lock} does not exist; `make lock` writes it (docs/load.md)")
    if lock and client_release(lock, client.packages) is None:
        raise error_at(project, "client", f"{lock} pins none of {', '.join(client.packages)}")
    for name in project.study.workloads:
        kind = WORKLOADS.get(project.workloads[name].kind)
        if project.has_natural_stops(name) and not client.takes_natural_stops:
            wrong = f"client {project.study.client} sends answers of a set length only; `servelab` lets them end"
            raise error_at(project, "client", f"{wrong} (workload {name}: `ignore_eos: false`)")
        try:
            client.check(project.study.protocol_of(name), token_ids=kind.sends_token_ids, turns=kind.sends_turns)
        except ConfigError as error:
            raise error_at(project, "client", f"{error} (workload {name})") from None


def _check_engine(project: Project, alias: str) -> None:
    entry = project.study.engines[alias]
    key = f"engines.{alias}"
    check_name(project, key, entry.engine or alias, ENGINES.names(), "engine")
    check_name(project, f"{key}.runtime", entry.runtime, RUNTIMES.names(), "runtime")
    if wrong := wrong_place(project.study, alias, project.engine(alias)):
        raise error_at(project, *wrong)
    lock = project.lock(alias)
    if not lock.is_file():
        raise error_at(project, f"{key}.lock", f"{lock} is no file; see 'Another version' in docs/engines.md")
    packages = project.engine(alias).packages
    pinned = RUNTIMES.get(entry.runtime).version(lock, packages)
    if pinned != entry.version:
        fix = f"{lock.name} pins {pinned}" if pinned else f"{lock.name} pins none of {', '.join(packages)}"
        raise error_at(project, f"{key}.version", f"the study has {entry.version}, but {fix}; see docs/engines.md")
