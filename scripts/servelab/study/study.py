"""A study as a user writes it: one file, one question.

docs/reference/keys.md and the JSON schema are generated from here.

`load_study` raises one `ConfigError` line for every mistake; it names file, key and the nearest valid name. That is
before anything is downloaded or started.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, field_serializer, model_validator

from servelab.core.errors import ConfigError
from servelab.core.run_spec import (
    ArgumentValue,
    CapacitySpec,
    Commit,
    HubSource,
    Line,
    ModelFormat,
    ModelSource,
    ProtocolSpec,
    Quantization,
    Strict,
    Variables,
)
from servelab.core.yaml_file import read_config
from servelab.study.search_keys import Answers, Budget, Objective, ProofKeys, SearchKeys
from servelab.study.workload_loads import NAME, CurvePoint, StudyWorkload, expand_curves, read_workloads

CONFIRM = "confirm"
"""The reserved last stage: baseline and winner measured afresh, in pairs of server starts, on every workload."""
CONFIRM_FIRST = "confirm-first"
"""The reserved stage with the first of these pairs."""
CONFIRM_MORE = "confirm-more"
"""The reserved stage between the two: more pairs if the first are not enough."""
PROOF_STAGES = (CONFIRM_FIRST, CONFIRM_MORE, CONFIRM)
COMPARISON = "comparison"
"""The last stage of a recorded study: baseline and winner on every workload, from logs."""
LAST_STAGES = (CONFIRM, COMPARISON)
"""The last stage of either kind of study."""
SECOND_PROOF = tuple(f"second-{stage}" for stage in PROOF_STAGES)
"""The same stages for the second of two objectives (`objective.pareto`): a proof of what is best by it."""
AFTER_SEARCH = (*SECOND_PROOF, CONFIRM_FIRST, CONFIRM_MORE, *LAST_STAGES)
"""Reserved stages that are no part of the search: baseline and winner only."""
PROPOSED = "proposed"
"""The reserved stage after the search: candidates added while it is open, each tried on its winner."""
RECHECK = "recheck"
"""The reserved last stage of a staged search: the winner against itself with each stage's choice reverted."""


class ModelVariant(Strict):
    """One set of weights: a pinned hub revision (`id` and `revision`), or another kind of `source`."""

    id: str | None = Field(
        None, description="Name of the model; for the hub, its repository. Default: the model's `id`."
    )
    revision: Commit | None = Field(None, description="Commit hash on the hub; branch and tag names are refused.")
    source: ModelSource | None = Field(None, description="Where the weights are, if not safetensors of the hub.")
    format: ModelFormat = Field("safetensors", description="Format of the weights at their source.")
    quantization: Quantization | None = Field(
        None,
        description="For a variant: the base model's GGUF weights, converted to this format. What that does to the "
        "answers is measured with `answers` only.",
    )

    @model_validator(mode="after")
    def _one_source(self) -> ModelVariant:
        given = [name for name in ("revision", "source", "quantization") if getattr(self, name) is not None]
        if len(given) != 1:
            found = f"found {' and '.join(given)}" if given else "found none"
            raise ValueError(f"give one of `revision` (a commit hash on the hub), `source` or `quantization`; {found}")
        return self


class Model(ModelVariant):
    """The model, and the other sets of weights that candidates may serve."""

    id: Line = Field(description="Name of the model; for the hub, its repository.")
    variants: dict[str, ModelVariant] = Field(
        {}, description="Other sets of weights, for example quantised ones, by the name that candidates use."
    )
    second_models: dict[str, Commit] = Field(
        {},
        description="Repository on the hub of a draft or LoRA adapter that arguments name → commit hash. It is "
        "fetched, and the server gets its folder.",
    )

    @property
    def second_sources(self) -> dict[str, HubSource]:
        """Where each second model comes from, by its repository."""
        return {name: HubSource(id=name, revision=at, whole=True) for name, at in self.second_models.items()}

    def variant(self, name: str) -> ModelVariant:
        """The set of weights with this name; `base` is the model itself."""
        return self if name == "base" else self.variants[name]

    def variant_format(self, name: str) -> ModelFormat:
        """Format of a variant's weights."""
        return self.format if self.variant(name).quantization else self.variant(name).format

    def variant_id(self, name: str) -> str:
        """The model name of a variant; for a quantized variant it ends with the format."""
        variant = self.variant(name)
        return variant.id or (f"{self.id}-{variant.quantization}" if variant.quantization else self.id)

    @model_validator(mode="after")
    def _has_weights(self) -> Model:
        if self.quantization is not None:
            raise ValueError("`quantization` is for a variant; the model itself has a `revision` or a `source`")
        return self

    def variant_source(self, name: str) -> ModelSource:
        """Where a variant's weights come from."""
        variant = self if self.variant(name).quantization else self.variant(name)
        if variant.source is not None:
            return variant.source
        return HubSource(id=variant.id or self.id, revision=str(variant.revision))


class StudyHardware(Strict):
    """The machine that the study measures."""

    accelerator: Line = Field(description="Model of the accelerator, as you name it; part of every run's identity.")
    device: str = Field("nvidia", description="Kind of device: how it is leased and made visible to the engine.")
    found_as: list[Line] = Field(
        [],
        description="Further names under which `nvidia-smi`, `npu-smi` or `lscpu` lists this accelerator "
        "(docs/cluster.md). A run is refused where another one is found. It is not part of a run's identity.",
    )
    per_node: int = Field(1, ge=1, description="Accelerators per node.")
    nodes: int = Field(
        1,
        ge=1,
        le=64,
        description="Nodes that each run takes, as many accelerators on each; `accelerators` counts those of all. More "
        "than one needs Slurm (docs/cluster.md).",
    )
    price_per_accelerator_hour: float | None = Field(
        None,
        gt=0,
        description="Price of an accelerator per hour, in any one currency, for `cost_per_million_tokens`. It is not "
        "part of a run's identity: another price reruns nothing.",
    )


class StudyEngine(Strict):
    """One engine at one version. A version is written only here: changing it reruns exactly this engine's runs."""

    version: Line = Field(
        description="The engine's version, as its package names it; `unknown` for a server that already runs."
    )
    engine: Line | None = Field(
        None, description="The engine, if the key is your own name, for example for two versions side by side."
    )
    runtime: str = Field("venv", description="Where the engine runs; `none`: it already runs (docs/engines.md).")
    lock: str | None = Field(
        None,
        description="File that describes its environment: a lock, or the file its runtime needs (docs/engines.md). "
        "Default: `envs/<engine>.lock.txt`; none is needed for a server that already runs.",
    )


class Overrides(Strict):
    """The changes of a candidate on the incumbent; everything else stays."""

    engine: str | None = Field(
        None,
        description="Another engine; the incumbent's `arguments` and `environment_variables` are then dropped.",
    )
    model: str | None = Field(None, description="Another set of weights: `base` or a key of `model.variants`.")
    options: dict[str, ArgumentValue] = Field(
        {},
        description="Options of the shared vocabulary (docs/engines.md); null restores the engine's default.",
    )
    arguments: dict[str, ArgumentValue] = Field(
        {},
        description="The engine's own arguments, unchanged and in this order, before the flags of `options`; null is a "
        "flag without a value, false removes the argument.",
    )
    environment_variables: Variables = Field({}, description="Environment variables of the server.")
    accelerators: int | None = Field(
        None, ge=1, description="Accelerators to use, of all `replicas` together. Default: as the incumbent."
    )
    replicas: int | None = Field(
        None,
        ge=1,
        description="Servers to start on the node, each with its own part of the accelerators, or of the cores of a "
        "machine that is one accelerator; measured as one deployment. Default: as the incumbent, 1 for the baseline.",
    )
    balancer: str | None = Field(
        None,
        description="What spreads requests over `replicas` (docs/engines.md#several-servers). Default: as the "
        "incumbent, `round_robin` for the baseline.",
    )


class Candidate(Overrides):
    """A configuration to try."""

    label: Line | None = Field(None, description="Name in tables and charts. Default: built from what it changes.")

    @property
    def name(self) -> str:
        """The label, or a name built from the overrides."""
        if self.label:
            return self.label
        parts = [part for part in (self.engine, self.model) if part]
        parts += [f"{key}={_brief(value)}" for key, value in self.options.items()]
        parts += [key if value is None else f"{key}={_brief(value)}" for key, value in self.arguments.items()]
        parts += [f"{key}={value}" for key, value in self.environment_variables.items()]
        if self.accelerators:
            parts.append(f"{self.accelerators} accelerators")
        parts += [f"{self.replicas} servers"] if self.replicas else []
        parts += [self.balancer] if self.balancer else []
        return ", ".join(parts)


class Stage(Strict):
    """One question of the search; it starts from the previous stage's winner."""

    name: str = Field(pattern=NAME, description="Short name, used for the folder and in tables.")
    title: Line | None = Field(None, description="Heading in the report.")
    when: dict[str, str | int | bool] = Field(
        {},
        description="The stage applies only if the incumbent has these: `engine`, `model`, `accelerators`, "
        "`replicas`, `hardware.per_node`, `options.<name>`.",
    )
    candidates: list[Candidate] = Field(
        description="Configurations to try. The stage `proposed` may have none yet: `servelab propose` adds to it, and "
        "its candidates are tried on the winner of the search."
    )

    @model_validator(mode="after")
    def _has_candidates(self) -> Stage:
        if not self.candidates and self.name != PROPOSED:
            raise ValueError("`candidates` is empty; give at least one")
        return self


class Study(Strict):
    """One question: which configuration serves this model best on this hardware?"""

    study: str = Field(pattern=NAME, description="Name of the folder under `results/studies/` and of `<study>.yaml`.")
    title: Line = Field(description="Heading of the report.")
    model: Model
    hardware: StudyHardware
    engines: dict[Line, StudyEngine] = Field(min_length=1, description="Engines with their versions.")
    objective: Objective
    protocol: ProtocolSpec = ProtocolSpec()
    search: SearchKeys = SearchKeys()
    proof: ProofKeys = ProofKeys()
    budget: Budget | None = Field(None, description="What search and proof may cost together. Default: no limit.")
    answers: Answers | None = Field(
        None,
        description="Questions whose answers must not get worse: a candidate that changes them never wins "
        "(docs/search.md#answers). No key: answers are not measured.",
    )
    client: str = Field("servelab", description="Load client.")
    baseline: Candidate = Field(description="The configuration to compare with.")
    stages: list[Stage] = Field(
        min_length=1, description="Questions, in order. A last one named `proposed` takes what `servelab propose` adds."
    )
    workloads: Annotated[
        dict[str, StudyWorkload],
        BeforeValidator(read_workloads, json_schema_input_type=list[str | StudyWorkload]),
        AfterValidator(expand_curves),
    ] = Field(description="Workloads: names of config/workloads.yaml, or mappings with a load of their own.")

    @field_serializer("workloads")
    def _as_written(self, workloads: dict[str, StudyWorkload]) -> list[Any]:
        written = {each.curve if isinstance(each, CurvePoint) else each.name: each for each in workloads.values()}
        return [each.as_written() for each in written.values()]

    @model_validator(mode="after")
    def _decides_at_a_point(self) -> Study:
        """Of a curve of concurrencies the highest point decides, unless the study names another."""
        points = self.curves.get(self.objective.on, [])
        if not points or self.workloads[points[-1]].max_concurrency is None:
            return self
        return self.model_copy(update={"objective": self.objective.model_copy(update={"on": points[-1]})})

    @model_validator(mode="after")
    def _proposed_is_last(self) -> Study:
        if not self.combined or PROPOSED in [stage.name for stage in self.stages[:-1]]:
            raise ValueError(f"`stages`: `{PROPOSED}` is the last of several")
        return self

    @property
    def combined(self) -> list[Stage]:
        """The stages that the strategy searches: all but `proposed`."""
        return [stage for stage in self.stages if stage.name != PROPOSED]

    @property
    def second(self) -> Study | None:
        """The study by the second of two objectives; None if it has one."""
        second = self.objective.second
        return None if second is None else self.model_copy(update={"objective": second})

    def of_stage(self, stage: str) -> Study:
        """The study by the objective that a stage is about."""
        return (self.second if stage in SECOND_PROOF else None) or self

    @property
    def proofs(self) -> list[tuple[str, ...]]:
        """The stages of each proof, those of the objective that decides last."""
        return [SECOND_PROOF, PROOF_STAGES] if self.objective.pareto else [PROOF_STAGES]

    @property
    def curves(self) -> dict[str, list[str]]:
        """Name of each curve → the workloads that are its points, the lowest first."""
        found: dict[str, list[str]] = {}
        for name, entry in self.workloads.items():
            if isinstance(entry, CurvePoint):
                found.setdefault(entry.curve, []).append(name)
        return found

    @property
    def searched(self) -> list[str]:
        """Workloads on which the search measures a candidate: the one that decides, with all points of its curve."""
        on = self.objective.on
        return next((points for points in self.curves.values() if on in points), [on])

    def level_of(self, workload: str) -> float | None:
        """A point's place on its curve; None for any other workload."""
        entry = self.workloads[workload]
        return entry.level if isinstance(entry, CurvePoint) else None

    def is_sent_unless_saturated(self, load: str) -> bool:
        """Whether a server start that was saturated at a lower point is not sent this one.

        That is so on a curve of rates, except where it decides. In a closed loop nothing piles up: all points are sent.
        """
        entry = self._workload(load)
        return isinstance(entry, CurvePoint) and entry.load_of == "request_rate" and entry.name != self.objective.on

    def _workload(self, load: str) -> StudyWorkload:
        """A workload; of a part, whose name is not among the workloads, that which decides."""
        return self.workloads.get(load) or self.workloads[self.objective.on]

    def protocol_of(self, load: str, accelerators: int | None = None) -> ProtocolSpec:
        """How a workload is sent, by its name: `protocol`, with what it has of its own; to one on so many accelerators.

        A workload that does not decide, and is on no curve that does, has one round by default.
        """
        entry, whole = self._workload(load), self.protocol
        found = entry.protocol(whole if entry.name in self.searched else whole.model_copy(update={"rounds": 1}))
        return found.shared(self.objective.sharing(accelerators, self.hardware.per_node)) if accelerators else found

    def pairs_on(self, workload: str) -> int:
        """How many pairs of the proof measure a workload, at least."""
        return self.workloads[workload].pairs or self.proof.pairs

    def capacity_of(self, load: str) -> CapacitySpec | None:
        """The search for capacity that a workload's load is, by its name or that of a part; None for one load."""
        return self._workload(load).capacity

    def slos_of(self, load: str) -> dict[str, float]:
        """Limits for goodput under a workload, by its name or that of a part."""
        own = self._workload(load).slos
        return self.objective.slos if own is None else own


def _brief(value: ArgumentValue) -> str:
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)


def load_study(path: Path) -> Study:
    """The study in a file, with its shape checked; `project.read_project` checks the names in it."""
    study = read_config(path, Study)
    if study.study != path.stem:
        raise ConfigError(f"{path}: study: `{study.study}` must be the file's name, `{path.stem}`")
    return study
