"""The subjects of the checks: a study's candidates, and its engines, models and workloads on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import pyarrow as pa

from servelab.assets.model_files import load_model
from servelab.assets.model_shape import shape_of_config
from servelab.assets.model_work import ModelFacts, read_facts, safetensors_bytes
from servelab.assets.sources import MODEL_PROBES, Probe
from servelab.assets.workloads import WORKLOADS
from servelab.core.errors import Outage, ServelabError
from servelab.core.identity import content_id, workload_id
from servelab.core.run_spec import ArgumentValue, ModelSource, ModelSpec, PathSource
from servelab.engines.accelerator_boards import GIB, AcceleratorBoard, board_of
from servelab.engines.adapters import Engine
from servelab.engines.runtimes import Environment, read_environment
from servelab.engines.start_rules import second_models
from servelab.machine.devices import DEVICES
from servelab.metrics.tables import schemas
from servelab.metrics.tables.io import read_table
from servelab.search.course import settled
from servelab.search.planning import plan_stage
from servelab.search.strategies import stage_names, strategy_of
from servelab.study.configuration import Configuration, Incumbent, baseline, key_of
from servelab.study.plan import Plan, PlannedCandidate, winner_of
from servelab.study.project import Project
from servelab.study.study import PROPOSED


@dataclass(frozen=True)
class Known:
    """A candidate as it would be measured, given the winners known so far."""

    name: str
    """`baseline`, or stage and label."""
    planned: PlannedCandidate
    meets_all_workloads: bool
    """Whether it is certainly measured on every workload of the study, not only on the one that decides."""

    @property
    def configuration(self) -> Configuration:
        """Its serving configuration."""
        return self.planned.configuration


def known_candidates(project: Project, results: Path) -> list[Known]:
    """The baseline, and the candidates that each stage would add, without repeated configurations.

    If a stage is not decided, the next one starts from its incumbent; if the next one does not apply to that, it starts
    from the first earlier candidate to which it applies.
    """
    strategy, stages = strategy_of(project.study), project.study.stages
    starts, plans = [baseline(project.study)], []
    if strategy.name == "grid":  # its first stage has every configuration
        plans.append(strategy.plan(project, stage_names(project.study)[0], []))
        stages = [stage for stage in stages if stage.name == PROPOSED]
    for stage in stages:
        possible = (plan_stage(project, stage.name, start) for start in starts)
        plan = first = next(possible)
        if not first.applies:
            plan = next((each for each in possible if each.applies), first)
        plans.append(plan)
        found = settled(project, plan, results)
        winner = winner_of(plan, found.decision.winner.candidate) if found.decision else None
        if winner and found.is_certain:
            starts = [winner]
        else:
            added = [Incumbent(candidate=item.candidate, configuration=item.configuration) for item in plan.candidates]
            starts = _distinct(project, [*([winner] if winner else []), *starts, *added])
    return list(_added(plans).values())


def _added(plans: list[Plan]) -> dict[str, Known]:
    """The baseline, from which the first plan starts, and the candidates that each plan adds, by configuration."""
    found = {key_of(plans[0].candidates[0].configuration): Known("baseline", plans[0].candidates[0], True)}
    for plan in plans:
        for planned in plan.candidates[1:]:
            known = Known(f"{plan.stage}: {planned.candidate}", planned, False)
            found.setdefault(key_of(planned.configuration), known)
    return found


def _distinct(project: Project, starts: list[Incumbent]) -> list[Incumbent]:
    """The starts without those that no stage's condition can distinguish from an earlier one."""
    named = {key.removeprefix("options.") for stage in project.study.stages for key in stage.when}
    kept: dict[tuple[object, ...], Incumbent] = {}
    for start in starts:
        configuration = start.configuration
        options = tuple(sorted((name, value) for name, value in configuration.options.items() if name in named))
        used = (configuration.accelerators, configuration.replicas)
        kept.setdefault((configuration.engine, configuration.model, used, options), start)
    return list(kept.values())


PROBE_TIMEOUT_S = 10.0
MODEL_ACTION = "fetch the model, or run this where its source answers"
_BITS = {"q4_0": 4.5, "q8_0": 8.5, "bf16": 16.0, "f16": 16.0, "safetensors": 16.0}
"""Bits per weight in the formats that the workflow makes; conversion to safetensors writes bfloat16."""


@dataclass(frozen=True)
class Requests:
    """Lengths of a workload's requests."""

    count: int
    longest_tokens: int | None
    """Prompt and output together, without a chat template; None if there is no limit."""
    is_exact: bool
    """Whether it was counted in the requests; otherwise it is a bound from the workload's parameters."""
    is_chat: bool


@dataclass(frozen=True)
class Memory:
    """Memory of one accelerator, and the source of that figure."""

    size_bytes: int
    source: str


class Place:
    """One study on this machine; looks everything up once."""

    def __init__(self, project: Project, results: Path, *, ask: bool) -> None:
        self.project, self.results, self.ask = project, results, ask
        self._probes: dict[str, Probe] = {}
        self._facts: dict[tuple[str, str], ModelFacts] = {}
        self._requests: dict[str, Requests] = {}

    @cached_property
    def candidates(self) -> list[Known]:
        """Every known candidate that its engine can serve."""
        return [known for known in self.all_candidates if known.planned.refused is None]

    @cached_property
    def all_candidates(self) -> list[Known]:
        """The same, including refused ones. Without `ask`, only those that are not measured yet."""
        known = known_candidates(self.project, self.results)
        if self.ask:
            return known
        runs = self.results / "runs"
        left = [[(runs / run.run_id / "status.json").exists() for run in each.planned.measured_runs] for each in known]
        return [entry for entry, there in zip(known, left, strict=True) if not there or not all(there)]

    def engine(self, known: Known) -> Engine:
        """A candidate's engine."""
        return self.project.engine(known.configuration.engine)

    @cached_property
    def board(self) -> AcceleratorBoard:
        """The study's accelerator as engines see it, with the memory that its driver reports if it is here."""
        hardware = self.project.study.hardware
        board = board_of(hardware.accelerator, is_cpu=hardware.device == "cpu")
        return replace(board, memory_gib=self.memory.size_bytes / GIB) if self.memory and not board.is_cpu else board

    def effective(self, known: Known) -> dict[str, ArgumentValue]:
        """A candidate's settings as its release serves them (`Engine.effective`), by variables too."""
        engine, configuration = self.engine(known), known.configuration
        version = self.project.study.engines[configuration.engine].version
        variables = {
            option: configuration.environment_variables[name]
            for name, option in engine.variables_of_options.items()
            if name in configuration.environment_variables
        }
        return variables | engine.effective(version, self.board, configuration.options, configuration.arguments)

    def environment_file(self, alias: str) -> Path:
        """The marker of an engine's environment, whether it is built or not."""
        folder = f"{self.project.engine(alias).name}-{self.project.environment_sha256(alias)[:12]}"
        return self.results / "envs" / folder / "environment.json"

    def environment(self, alias: str) -> Environment | None:
        """An engine's environment; None if it is not built, `Outage` if it is broken."""
        marker = self.environment_file(alias)
        return read_environment(marker) if marker.exists() else None

    def probe(self, source: ModelSource) -> Probe | None:
        """The answer of a model's source; None without `ask`."""
        key = content_id(source.model_dump(mode="json"))
        if self.ask and key not in self._probes:
            self._probes[key] = MODEL_PROBES.get(source.kind)(source, PROBE_TIMEOUT_S)
        return self._probes.get(key)

    def stored_model(self, source: ModelSource, suffix: str = "") -> Path | None:
        """`model.json` of a source's model, if it is there; `suffix` is that of its conversion."""
        file = self.results / "models" / f"{content_id(source.model_dump(mode='json'))}{suffix}" / "model.json"
        return file if file.exists() else None

    def facts(self, model: ModelSpec) -> ModelFacts:
        """The known facts of a model in the format that is served: from its files if they are here, or its source."""
        key = (model.variant, model.format)
        if key not in self._facts:
            self._facts[key] = self._look_at_model(model)
        return self._facts[key]

    def draft(self, arguments: Mapping[str, ArgumentValue]) -> ModelFacts:
        """The facts of the draft that these arguments name, if it is known; an adapter has no shape."""
        sources, names = self.project.study.model.second_sources, [name for _, name, _ in second_models(arguments)]
        found = [self._look_at_source(sources.get(name) or PathSource(path=name, revision="")) for name in names]
        return next((each for each in found if each.shape and each.weights_bytes), ModelFacts())

    def _look_at_model(self, model: ModelSpec) -> ModelFacts:
        suffix = f"-{model.quantization or model.format}" if model.conversion else ""
        if model.conversion and not self.stored_model(model.source, suffix):
            source = self.stored_model(model.source)
            facts = self._read_facts(load_model(source)[1]) if source else ModelFacts()
            bits = _BITS[model.quantization or model.format]
            weights = int(facts.parameters * bits / 8) if facts.parameters else None
            return ModelFacts(weights_bytes=weights, shape=facts.shape, parameters=facts.parameters)
        return self._look_at_source(model.source, suffix, is_gguf=model.format == "gguf")

    def _look_at_source(self, source: ModelSource, suffix: str = "", *, is_gguf: bool = False) -> ModelFacts:
        if stored := self.stored_model(source, suffix):
            return self._read_facts(load_model(stored)[1])
        probe = self.probe(source)
        if probe is None:
            return ModelFacts()
        config = probe.config
        if source.kind == "path" and probe.there:
            return self._read_facts(Path(source.path))
        weights = safetensors_bytes(probe.files) or (sum(probe.files.values()) if is_gguf else None)
        return ModelFacts(weights, shape_of_config(config) if config else None, config=config or {})

    def _read_facts(self, path: Path) -> ModelFacts:
        if not self.ask and path.is_file():  # reading the metadata of a GGUF file takes seconds
            return ModelFacts()
        try:
            return read_facts(path)
        except (ServelabError, OSError):
            return ModelFacts()

    def requests(self, workload: str) -> Requests:
        """Lengths of a workload's requests: counted if prepared, or bounded by its parameters."""
        if workload not in self._requests:
            self._requests[workload] = self._look_at_requests(workload)
        return self._requests[workload]

    def _look_at_requests(self, workload: str) -> Requests:
        named = self.project.workloads[workload]
        is_chat = named.endpoint == "chat"
        file = self.results / "workloads" / workload_id(self.project.workload_spec(workload)) / "requests.parquet"
        if file.exists():
            columns = [schemas.WORKLOAD_REQUESTS.field(name) for name in ("phase", "input_tokens", "output_tokens")]
            table = read_table(file, pa.schema(columns))
            longest = int((table["input_tokens"] + table["output_tokens"]).max())
            return Requests(int((table["phase"] == "measured").sum()), longest, True, is_chat)
        kind = WORKLOADS.get(named.kind)
        parameters = kind.Parameters.model_validate(named.parameters)
        return Requests(parameters.num_requests, kind.longest_tokens(parameters), False, is_chat)

    @cached_property
    def memory(self) -> Memory | None:
        """Memory of the study's accelerator: read on this machine if it has one, or known from its name."""
        hardware = self.project.study.hardware
        sizes = []
        if self.ask or hardware.device == "cpu":
            with suppress(Outage):
                sizes = [
                    size for each in DEVICES.get(hardware.device).find() if (size := each.memory_bytes) is not None
                ]
        if sizes:
            return Memory(min(sizes), "on this machine")
        named_gib = board_of(hardware.accelerator).memory_gib
        return Memory(int(named_gib * GIB), "from its name") if named_gib else None
