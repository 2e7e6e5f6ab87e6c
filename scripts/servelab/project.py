"""A study together with all it refers to: workloads, datasets, engines, locks. Every name is checked here."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from servelab.clients import CLIENTS, version_in_identity
from servelab.conversion import CONVERTERS
from servelab.credentials import has_credential, is_secret
from servelab.datasets import Dataset, load_datasets
from servelab.devices import DEVICES
from servelab.engines import ENGINES, Engine
from servelab.engines.options import check_option_names
from servelab.errors import ConfigError
from servelab.identity import file_sha256
from servelab.metrics import METRICS, slo_metrics
from servelab.plan import Load
from servelab.quantization import VERSION as QUANTIZER
from servelab.registry import nearest
from servelab.runtimes import RUNTIMES
from servelab.search import STRATEGIES, stage_names, strategy_of
from servelab.spec import ClientSpec, WorkloadSpec
from servelab.study import COMPARISON, RECHECK, Candidate, Study, load_study
from servelab.workloads import WORKLOADS, NamedWorkload, load_workloads

WHEN_KEYS = ("engine", "model", "accelerators", "hardware.per_node")


@dataclass(frozen=True)
class Project:
    """A checked study. `root` is the folder that `config/` and `envs/` lie in."""

    study: Study
    file: Path
    root: Path
    workloads: dict[str, NamedWorkload]
    datasets: dict[str, Dataset]

    def engine(self, alias: str) -> Engine:
        """The engine behind a study's name for it."""
        return ENGINES.get(self.study.engines[alias].engine or alias)

    def lock(self, alias: str) -> Path:
        """The lock of an engine's environment."""
        given = self.study.engines[alias].lock
        return self.root / (given or f"envs/{self.engine(alias).name}.lock.txt")

    def environment_sha256(self, alias: str) -> str:
        """sha256 of that lock: the environment's identity."""
        return self._lock_sha256[alias]

    @cached_property
    def _lock_sha256(self) -> dict[str, str]:
        return {alias: file_sha256(self.lock(alias)) for alias in self.study.engines}

    def workload_spec(self, name: str) -> WorkloadSpec:
        """The identity of a workload for this study's model; all its variants share the base model's tokenizer."""
        return self._workload_specs[name]

    @cached_property
    def _workload_specs(self) -> dict[str, WorkloadSpec]:
        tokenizer = self.study.model.variant_source("base")
        return {name: self.workloads[name].spec(tokenizer) for name in self.study.workloads}

    @property
    def client_lock(self) -> Path | None:
        """The lock of the load client's environment; None for the workflow's own."""
        lock = CLIENTS.get(self.study.client).lock
        return self.root / lock if lock else None

    def client_spec(self) -> ClientSpec:
        """The load client, its version with its release, and its environment."""
        return self._client_spec

    @cached_property
    def _client_spec(self) -> ClientSpec:
        client, lock = CLIENTS.get(self.study.client), self.client_lock
        return ClientSpec(
            name=client.name,
            version=version_in_identity(client, _client_release(lock, client.packages) if lock else None),
            environment_sha256=file_sha256(lock) if lock else None,
        )

    def conversion(self, source_format: str, model_format: str, quantization: str | None, engine: str) -> str | None:
        """What is done to the weights before they are served, None if nothing; `ConfigError` if it cannot be done."""
        if source_format == model_format:
            return f"{QUANTIZER}: {quantization}" if quantization else None
        converter = CONVERTERS.get((source_format, model_format))
        if converter is None or quantization is not None:
            what = f"{source_format} in {quantization}" if quantization else source_format
            raise ConfigError(f"engine {engine} serves {model_format}, and {what} cannot be converted to it")
        return converter

    @cached_property
    def stage_names(self) -> list[str]:
        """Stages in order, as the search has them, the reserved last one included."""
        return stage_names(self.study)

    @cached_property
    def loads(self) -> list[Load]:
        """All that runs of the study may be loaded with."""
        whole = [Load(workload=workload) for workload in self.study.workloads]
        return [*whole, *strategy_of(self.study).loads(self.study)]


def load_project(file: Path, root: Path) -> Project:
    """The study in a file with everything it refers to; any mistake is a `ConfigError` before anything starts."""
    study = load_study(file)
    datasets = load_datasets(root / "config/datasets.yaml")
    workloads = load_workloads(root / "config/workloads.yaml", datasets)
    project = Project(study=study, file=file, root=root, workloads=workloads, datasets=datasets)
    _check(project)
    return project


def _check(project: Project) -> None:
    study = project.study
    _check_name(project, "hardware.device", study.hardware.device, DEVICES.names(), "device")
    _check_name(project, "client", study.client, CLIENTS.names(), "client")
    _check_objective(project)
    for workload in study.workloads:
        _check_name(project, "workloads", workload, list(project.workloads), "workload")
        if (
            study.protocol.arrivals == "replay"
            and not WORKLOADS.get(project.workloads[workload].kind).has_arrival_times
        ):
            wrong = f"workload {workload} has no arrival times to replay; a workload of kind `trace` has"
            raise _error(project, "protocol.arrivals", wrong)
    _check_client(project)
    _check_name(project, "objective.on", study.objective.on, study.workloads, "workload of this study")
    if study.protocol.rounds.min > study.protocol.rounds.max:
        raise _error(project, "protocol.rounds", f"min {study.protocol.rounds.min} > max {study.protocol.rounds.max}")
    for name, variant in study.model.variants.items():
        if variant.quantization is not None and study.model.format != "gguf":
            raise _error(project, f"model.variants.{name}.quantization", "only a model in gguf can be quantised here")
    for alias in study.engines:
        _check_engine(project, alias)
    if study.baseline.engine is None:
        raise _error(project, "baseline.engine", f"`engine` is missing; one of {', '.join(study.engines)}")
    _check_candidate(project, "baseline", study.baseline)
    names: set[str] = set()
    for position, stage in enumerate(study.stages):
        key = f"stages.{position} ({stage.name})"
        is_reserved = stage.name in (COMPARISON, RECHECK)
        if stage.name in names or is_reserved:
            raise _error(project, key, "this name is reserved" if is_reserved else "this name stands twice")
        names.add(stage.name)
        for when in stage.when:
            if not when.startswith("options."):
                _check_name(project, f"{key}.when", when, [*WHEN_KEYS, "options.<name>"], "condition")
        _check_candidates(project, key, stage.candidates)
    _check_search(project)


def _check_search(project: Project) -> None:
    search = project.study.search
    _check_name(project, "search.strategy", search.strategy, STRATEGIES.names(), "search strategy")
    strategy = strategy_of(project.study)
    for name in search.stop_when.given:
        if name not in strategy.honours:
            can = [each.name for each in STRATEGIES if name in each.honours]
            wrong = f"`{strategy.name}` cannot be ended by it; leave it out, or take {' or '.join(can)}"
            raise _error(project, f"search.stop_when.{name}", wrong)
    if search.stop_when.slo_reached is not None and not project.study.objective.slos:
        raise _error(project, "search.stop_when.slo_reached", "needs limits; add `objective.slos`")
    strategy.outlines(project.study)


def _check_objective(project: Project) -> None:
    objective = project.study.objective
    better = [metric.tag for metric in METRICS if metric.higher_is_better is not None]
    _check_name(project, "objective.metric", objective.metric, better, "metric with a better direction")
    for metric, limits in objective.constraints.items():
        _check_name(project, "objective.constraints", metric, better, "metric with a better direction")
        if not limits:
            raise _error(project, f"objective.constraints.{metric}", "names no statistic; write `{mean: 50}`, say")
    for metric in objective.slos:
        _check_name(project, "objective.slos", metric, slo_metrics(), "metric of single requests")
    for key, metric in [("metric", objective.metric), *(("constraints", each) for each in objective.constraints)]:
        if METRICS.get(metric).needs_slos and not objective.slos:
            example = "`slos: {ttft_ms: 500, tpot_ms: 50}`"
            raise _error(project, f"objective.{key}", f"{metric} needs limits; add {example}")
        if METRICS.get(metric).needs_price and project.study.hardware.price_per_accelerator_hour is None:
            raise _error(project, f"objective.{key}", f"{metric} needs `hardware.price_per_accelerator_hour`")


def _check_candidates(project: Project, key: str, candidates: list[Candidate]) -> None:
    seen: dict[str, int] = {}
    labels: dict[str, int] = {}
    for position, candidate in enumerate(candidates):
        here = f"{key}.candidates.{position}"
        content = candidate.model_dump_json(exclude={"label"}, exclude_defaults=True)
        if content == "{}":
            raise _error(project, here, "changes nothing on the incumbent; name an engine, a model or an option")
        if content in seen:
            raise _error(project, here, f"the same as candidate {seen[content]}; remove one")
        if candidate.name in labels:
            raise _error(project, here, f"has the label of candidate {labels[candidate.name]}, `{candidate.name}`")
        seen[content], labels[candidate.name] = position, position
        _check_candidate(project, here, candidate)


def _check_candidate(project: Project, key: str, candidate: Candidate) -> None:
    study = project.study
    if candidate.engine is not None:
        _check_name(project, f"{key}.engine", candidate.engine, list(study.engines), "engine of this study")
    if candidate.model is not None:
        _check_name(project, f"{key}.model", candidate.model, ["base", *study.model.variants], "model variant")
    if (candidate.accelerators or 1) > study.hardware.per_node:
        wrong = f"{candidate.accelerators} is more than the {study.hardware.per_node} of hardware.per_node"
        raise _error(project, f"{key}.accelerators", wrong)
    _check_credentials(project, key, candidate)
    aliases = [candidate.engine] if candidate.engine else list(study.engines)
    try:
        check_option_names(candidate.options)
        _check_options(candidate, [(project.engine(alias), study.engines[alias].version) for alias in aliases])
    except ConfigError as error:
        raise _error(project, f"{key}.options", str(error)) from None


def _check_credentials(project: Project, key: str, candidate: Candidate) -> None:
    """What a candidate sets is in the name of its runs, in commands and in reports; a credential must not be."""
    for kind, given in (
        ("environment_variables", candidate.environment_variables),
        ("arguments", candidate.arguments),
        ("options", candidate.options),
    ):
        for name, value in given.items():
            if is_secret(name, value) or has_credential(str(value)):
                wrong = "a credential would get into specifications, commands and reports; take it out"
                raise _error(project, f"{key}.{kind}.{name}", f"{wrong} (a server here needs none: it is on loopback)")


def _check_options(candidate: Candidate, engines: list[tuple[Engine, str]]) -> None:
    """An option that no engine has which the candidate could run on is a mistake; one that some lack is not."""
    for name, value in candidate.options.items():
        refusals = []
        for engine, version in engines:
            try:
                engine.check_options({name: value}, version)
            except ConfigError as error:
                refusals.append(error)
        if len(refusals) == len(engines):
            raise refusals[0]


def _check_client(project: Project) -> None:
    client, lock = CLIENTS.get(project.study.client), project.client_lock
    if lock and not lock.exists():
        raise _error(project, "client", f"{lock} does not exist; `make lock` makes it")
    if lock and _client_release(lock, client.packages) is None:
        raise _error(project, "client", f"{lock} pins none of {', '.join(client.packages)}")
    for name in project.study.workloads:
        token_ids = WORKLOADS.get(project.workloads[name].kind).sends_token_ids
        try:
            client.check(project.study.protocol, token_ids=token_ids)
        except ConfigError as error:
            raise _error(project, "client", f"{error} (workload {name})") from None


def _check_engine(project: Project, alias: str) -> None:
    entry = project.study.engines[alias]
    key = f"engines.{alias}"
    _check_name(project, key, entry.engine or alias, ENGINES.names(), "engine")
    _check_name(project, f"{key}.runtime", entry.runtime, RUNTIMES.names(), "runtime")
    lock = project.lock(alias)
    if not lock.exists():
        raise _error(project, f"{key}.lock", f"{lock} does not exist; see docs/engines.md, 'Another version'")
    packages = project.engine(alias).packages
    pinned = RUNTIMES.get(entry.runtime).version(lock, packages)
    if pinned != entry.version:
        fix = f"{lock.name} pins {pinned}" if pinned else f"{lock.name} pins none of {', '.join(packages)}"
        raise _error(project, f"{key}.version", f"the study says {entry.version}, {fix}; see docs/engines.md")


def _client_release(lock: Path, packages: tuple[str, ...]) -> str | None:
    return RUNTIMES.get("venv").version(lock, packages)


def _check_name(project: Project, key: str, name: str, valid: list[str], kind: str) -> None:
    if name not in valid:
        raise _error(project, key, f"unknown {kind} `{name}`{nearest(name, valid)}")


def _error(project: Project, key: str, text: str) -> ConfigError:
    return ConfigError(f"{project.file}: {key}: {text}")
