"""A study, as a user writes it: one file, one question. Typed once; docs/studies.md and the schema come from here.

`load_study` turns every mistake into one `ConfigError` line that names file, key and the nearest valid name,
before anything is downloaded or started.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field, model_validator

from servelab.config_file import read_config
from servelab.errors import ConfigError
from servelab.metrics import METRICS
from servelab.objective import Basis, Statistic
from servelab.spec import (
    ArgumentValue,
    HubSource,
    ModelFormat,
    ModelSource,
    ProtocolSpec,
    Quantization,
    Strict,
)

NAME = r"^[a-z0-9][a-z0-9._-]*$"
COMPARISON = "comparison"
"""The reserved last stage: baseline and winner on every workload."""
RECHECK = "recheck"
"""The reserved stage before it: the winner against itself with each stage's choice turned back."""


class ModelVariant(Strict):
    """One set of weights: a pinned hub revision (`id` and `revision`), or a `source` of another kind."""

    id: str | None = Field(
        None, description="Name of the model; for the hub, its repository. Default: the model's `id`."
    )
    revision: str | None = Field(
        None,
        pattern=r"^[0-9a-f]{40}$",
        description="Commit hash on the hub; a branch or tag name is refused.",
    )
    source: ModelSource | None = Field(None, description="Where the weights are, if not the hub: `package` or `path`.")
    format: ModelFormat = Field("safetensors", description="Format of the weights at their source.")
    quantization: Quantization | None = Field(
        None,
        description="For a variant: the base model's GGUF weights brought into this format. Speed is measured, what it "
        "does to the answers is not.",
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

    id: str = Field(description="Name of the model; for the hub, its repository.")
    variants: dict[str, ModelVariant] = Field(
        {}, description="Other sets of weights (quantised ones, say) by the name candidates use."
    )

    def variant(self, name: str) -> ModelVariant:
        """The set of weights of that name; `base` is the model itself."""
        return self if name == "base" else self.variants[name]

    def variant_format(self, name: str) -> ModelFormat:
        """Format of a variant's weights."""
        return self.format if self.variant(name).quantization else self.variant(name).format

    def variant_id(self, name: str) -> str:
        """The model name of a variant; one in another number format says so."""
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


class Hardware(Strict):
    """The machine the study is about."""

    accelerator: str = Field(description="Model of the accelerator, as you name it; part of every run's identity.")
    device: str = Field("nvidia", description="Kind of device: how it is leased and shown to the engine.")
    per_node: int = Field(1, ge=1, description="Accelerators of a node.")
    price_per_accelerator_hour: float | None = Field(
        None,
        gt=0,
        description="What an accelerator costs an hour, in any one currency: for `cost_per_million_tokens`. No part of "
        "a run's identity: another price reruns nothing.",
    )


class Engine(Strict):
    """One engine at one version. Versions live here and only here: raising one reruns exactly its runs."""

    version: str = Field(description="The engine's version, as its package names it.")
    engine: str | None = Field(
        None, description="The engine, where the key is a name of your own (two versions side by side, say)."
    )
    runtime: str = Field("venv", description="Where the engine runs.")
    lock: str | None = Field(
        None,
        description="File that describes its environment: a lock, or what its runtime asks for (docs/engines.md). "
        "Default: `envs/<engine>.lock.txt`.",
    )
    joined_values: bool = Field(
        False,
        description="Write commands with `--flag=value` instead of `--flag value`. Both mean the same, so it is not "
        "part of a run's identity.",
    )


class Objective(Strict):
    """What is better, and by how much it must be."""

    metric: str = Field("total_tokens_per_s", description="Metric to improve; its direction is its own.")
    per: Basis = Field(
        "accelerator",
        description="`deployment` as run, ÷ accelerators used, or × deployments that fit a node.",
    )
    on: str = Field(description="Workload that decides; the others are measured for baseline and winner.")
    min_success_rate: float = Field(1.0, ge=0, le=1, description="A candidate below it is never a winner.")
    margin_percent: float = Field(2.0, ge=0, description="Smaller differences do not move the search.")
    max_loss_percent: float = Field(
        5.0,
        ge=0,
        description="The other workloads guard the answer: a winner that loses more on one of them is shown as such, "
        "with what to use there instead.",
    )
    slos: dict[str, Annotated[float, Field(gt=0)]] = Field(
        {},
        description="Limits for `goodput_per_s`: metric of single requests (`ttft_ms`, `tpot_ms`, `e2el_ms`, …) → most "
        "it may be for a request to count. Another limit reruns nothing, unless goodput is the objective.",
    )
    constraints: dict[str, dict[Statistic, float]] = Field(
        {},
        description="What a winner must keep on the workload that decides: metric → statistic (`mean`, `median`, "
        "`p90`, `p95`, `p99`, `minimum`, `maximum`) → limit, `{tpot_ms: {mean: 50}, ttft_ms: {p99: 2000}}`. At most, "
        "or at least where higher is better. Another limit reruns nothing.",
    )
    interleaved_cycles: int = Field(
        0,
        ge=0,
        description="Before a candidate takes over, it is measured again beside the incumbent in the order A/B/B/A, so "
        "many times over, and these rounds decide; 0 leaves it out.",
    )

    @property
    def metric_and_basis(self) -> tuple[str, Basis]:
        """The metric, and the basis its figures are on: only a rate adds up over deployments."""
        return self.metric, self.per if METRICS.get(self.metric).is_rate else "deployment"

    @property
    def measured_metric_and_basis(self) -> tuple[str, Basis]:
        """The same of what a run says while it is measured: for a cost, which needs a price, the rate behind it."""
        measured_as = METRICS.get(self.metric).measured_as
        return (measured_as, "accelerator") if measured_as else self.metric_and_basis


class Overrides(Strict):
    """What a candidate changes on the incumbent; what is not named stays."""

    engine: str | None = Field(
        None,
        description="Another engine; the incumbent's `arguments` and `environment_variables` are then dropped.",
    )
    model: str | None = Field(None, description="Another set of weights: `base` or a key of `model.variants`.")
    options: dict[str, ArgumentValue] = Field(
        {},
        description="Options of the shared vocabulary (docs/engines.md); null goes back to the engine's default.",
    )
    arguments: dict[str, ArgumentValue] = Field(
        {},
        description="The engine's own arguments, as given and in this order, before the flags of `options`; null is a "
        "bare flag, false leaves it out.",
    )
    environment_variables: dict[str, str] = Field({}, description="Environment variables of the server.")
    accelerators: int | None = Field(None, ge=1, description="Accelerators to use; by default as the incumbent.")


class Candidate(Overrides):
    """A configuration to try."""

    label: str | None = Field(None, description="Name in tables and charts. Default: made from what it changes.")

    @property
    def name(self) -> str:
        """The label, or one made from the overrides."""
        if self.label:
            return self.label
        parts = [part for part in (self.engine, self.model) if part]
        parts += [f"{key}={_brief(value)}" for key, value in self.options.items()]
        parts += [key if value is None else f"{key}={_brief(value)}" for key, value in self.arguments.items()]
        parts += [f"{key}={value}" for key, value in self.environment_variables.items()]
        if self.accelerators:
            parts.append(f"{self.accelerators} accelerators")
        return ", ".join(parts)


class Stage(Strict):
    """One question of the search; it starts from the last stage's winner."""

    name: str = Field(pattern=NAME, description="Short name: folder and key.")
    title: str | None = Field(None, description="Heading in the report.")
    when: dict[str, str | int | bool] = Field(
        {},
        description="The stage applies only where the incumbent has these: `engine`, `model`, `accelerators`, "
        "`hardware.per_node`, `options.<name>`.",
    )
    candidates: list[Candidate] = Field(min_length=1, description="Configurations to try.")


class StopWhen(Strict):
    """What ends a search before its last stage; baseline and winner are compared all the same."""

    accelerator_hours: float | None = Field(
        None,
        gt=0,
        description="Budget of the search: a stage leaves out its last candidates where what the stages before it "
        "took, and what its runs will take by their mean, exceeds it.",
    )
    objective_reached: float | None = Field(
        None, description="No further stage once the incumbent's objective is as good as this, on the study's basis."
    )
    slo_reached: float | None = Field(
        None,
        gt=0,
        le=1,
        description="No further stage once this share of the incumbent's requests keeps `objective.slos`.",
    )

    @property
    def given(self) -> list[str]:
        """Names of those that the study sets."""
        return [name for name in type(self).model_fields if getattr(self, name) is not None]


class Search(Strict):
    """How candidates are searched; docs/search.md explains it."""

    strategy: str = Field(
        "staged",
        description="`staged`: stage by stage, each on the last winner. `grid`: every combination of the stages' "
        "candidates. `halving`: every combination with a short load, the best ones with longer ones.",
    )
    recheck: bool = Field(
        True,
        description="For `staged`: at last the winner against itself with each changed stage's choice turned back, so "
        "that a choice that no longer helps is dropped. It is one run for each stage but one that changed something.",
    )
    eta: int = Field(
        4,
        ge=2,
        description="For `halving`: of each rung one in so many candidates goes on, and the next load is so many times "
        "longer.",
    )
    rungs: int = Field(3, ge=2, le=6, description="For `halving`: how many loads; the last is the whole workload.")
    stop_when: StopWhen = StopWhen()


class Study(Strict):
    """One question: which configuration serves this model best on this hardware?"""

    study: str = Field(pattern=NAME, description="Name: folder under `results/studies/`; the file is `<study>.yaml`.")
    title: str = Field(description="Heading of the report.")
    model: Model
    hardware: Hardware
    engines: dict[str, Engine] = Field(min_length=1, description="Engines with their versions.")
    objective: Objective
    protocol: ProtocolSpec = ProtocolSpec()
    search: Search = Search()
    client: str = Field("servelab", description="Load client.")
    baseline: Candidate = Field(description="The configuration that everything is compared with.")
    stages: list[Stage] = Field(min_length=1, description="Questions, in order.")
    workloads: list[str] = Field(min_length=1, description="Workloads of config/workloads.yaml.")


def _brief(value: ArgumentValue) -> str:
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)


def load_study(path: Path) -> Study:
    """The study in a file, with its shape checked; `check.check_study` checks its names against everything else."""
    study = read_config(path, Study)
    if study.study != path.stem:
        raise ConfigError(f"{path}: study: `{study.study}` must be the file's name, `{path.stem}`")
    return study
