"""A study with everything it refers to: workloads, datasets, engines, locks."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import Field

from servelab.answers.sets import QUESTION_SETS, Questions, QuestionsParameters
from servelab.assets.datasets import Dataset
from servelab.assets.model_files import CONVERTERS, GGUF_QUANTIZER
from servelab.assets.workloads import NamedWorkload
from servelab.core.errors import ConfigError, ServelabError
from servelab.core.files import JsonFile, JsonPart, own_or_shipped, write_json
from servelab.core.identity import lock_sha256
from servelab.core.registry import nearest
from servelab.core.run_spec import ClientSpec, ProtocolSpec, RunSpec, WorkloadSpec
from servelab.engines.adapters import ENGINES, Engine
from servelab.engines.runtimes import RUNTIMES
from servelab.measure.clients import CLIENTS, version_in_identity
from servelab.study.plan import Plan, PlannedCandidate
from servelab.study.predictions import KERNEL_TIMINGS, Predictions
from servelab.study.recorded.plan import RecordedPlan
from servelab.study.recorded.study import RecordedStudy, load_recorded
from servelab.study.search_keys import Objective
from servelab.study.study import Study, StudyHardware, load_study


@dataclass(frozen=True)
class Project:
    """A checked study.

    `root` is the folder that contains `config/`; what it lacks of that and of `envs/` is the checkout's.
    """

    study: Study
    file: Path
    root: Path
    workloads: dict[str, NamedWorkload]
    """The workloads of the study, by its names for them."""
    datasets: dict[str, Dataset]
    predictions: Predictions | None = None
    """A prior of the search (`search.prior`)."""

    @cached_property
    def planned(self) -> dict[Hashable, PlannedCandidate]:
        """Candidates that were planned already, by what they depend on."""
        return {}

    @cached_property
    def shared_specs(self) -> dict[Hashable, RunSpec]:
        """What runs have in common, by what it depends on."""
        return {}

    def engine(self, alias: str) -> Engine:
        """The engine that a study calls `alias`."""
        return ENGINES.get(self.study.engines[alias].engine or alias)

    def lock(self, alias: str) -> Path:
        """The lock of an engine's environment."""
        given = self.study.engines[alias].lock
        kind = "none.yaml" if self.engine(alias).already_runs else "lock.txt"
        return own_or_shipped(self.root, given or f"envs/{self.engine(alias).name}.{kind}")

    def environment_sha256(self, alias: str) -> str:
        """sha256 of the lock of an engine's environment, which is the environment's identity."""
        return self._lock_sha256[alias]

    @cached_property
    def _lock_sha256(self) -> dict[str, str]:
        return {alias: lock_sha256(self.lock(alias)) for alias in self.study.engines}

    def workload_spec(self, name: str) -> WorkloadSpec:
        """The identity of a workload for this study's model; all variants share the base model's tokenizer."""
        return self._workload_specs[name]

    @cached_property
    def _workload_specs(self) -> dict[str, WorkloadSpec]:
        tokenizer = self.study.model.variant_source("base")
        return {name: self.workloads[name].spec(tokenizer) for name in self.study.workloads}

    def has_natural_stops(self, name: str) -> bool:
        """Whether the answers of a workload end by themselves (`ignore_eos: false`)."""
        return self.workloads[name].parameters.get("ignore_eos") is False

    def questions_spec(self) -> WorkloadSpec:
        """The identity of the questions that candidates are asked; the study must have `answers`."""
        asked = self.study.answers
        assert asked is not None
        dataset = self.questions_dataset
        parameters = QuestionsParameters(
            num_requests=asked.num_questions,
            seed=0,
            endpoint=asked.endpoint,
            questions=asked.questions,
            set_version=QUESTION_SETS.get(asked.questions).version,
            dataset_sha256=self.datasets[dataset].sha256 if dataset else None,
        )
        return WorkloadSpec(
            kind=Questions.kind,
            parameters=parameters.model_dump(mode="json"),
            tokenizer=self.study.model.variant_source("base"),
            generator_version=Questions.version,
        )

    @property
    def questions_dataset(self) -> str | None:
        """The dataset that the questions are from; None if the set needs none, or nothing is asked."""
        asked = self.study.answers
        if asked is None or not QUESTION_SETS.get(asked.questions).needs_file:
            return None
        return asked.dataset or asked.questions

    @property
    def client_lock(self) -> Path | None:
        """The lock of the load client's environment; None if it uses the workflow's environment."""
        lock = CLIENTS.get(self.study.client).lock
        return own_or_shipped(self.root, lock) if lock else None

    @property
    def timings_lock(self) -> Path | None:
        """The lock of the environment that predicts; None if the study has no prior from tables."""
        is_asked = self.study.search.prior == KERNEL_TIMINGS
        return own_or_shipped(self.root, f"envs/{KERNEL_TIMINGS}.lock.txt") if is_asked else None

    def client_spec(self) -> ClientSpec:
        """The load client, its version with its release, and its environment."""
        return self._client_spec

    @cached_property
    def _client_spec(self) -> ClientSpec:
        client, lock = CLIENTS.get(self.study.client), self.client_lock
        return ClientSpec(
            name=client.name,
            version=version_in_identity(client, client_release(lock, client.packages) if lock else None),
            environment_sha256=lock_sha256(lock) if lock else None,
        )

    def conversion(self, source_format: str, model_format: str, quantization: str | None, engine: str) -> str | None:
        """The conversion of the weights before serving; None if none is needed, `ConfigError` if there is none."""
        if source_format == model_format:
            return f"{GGUF_QUANTIZER}: {quantization}" if quantization else None
        converter = CONVERTERS.get((source_format, model_format))
        if converter is None or quantization is not None:
            what = f"{source_format} in {quantization}" if quantization else source_format
            raise ConfigError(f"engine {engine} serves {model_format}, but {what} cannot be converted to it")
        return converter


def client_release(lock: Path, packages: tuple[str, ...]) -> str | None:
    """The release of a load client that a lock pins; None if it pins none of its packages."""
    return RUNTIMES.get("venv").version(lock, packages)


def check_name(project: Project, key: str, name: str, valid: list[str], kind: str) -> None:
    """Raises `ConfigError` with the nearest valid name unless `name` is one of `valid`."""
    if name not in valid:
        raise error_at(project, key, f"unknown {kind} `{name}`{nearest(name, valid)}")


def error_at(project: Project, key: str, text: str) -> ConfigError:
    """An error that names the study's file and the key."""
    return ConfigError(f"{project.file}: {key}: {text}")


class StageOutline(JsonPart):
    """A stage that decides, in the order of the search."""

    name: str = Field(description="Name of the stage.")
    title: str = Field(description="Its heading.")
    candidates: list[str] = Field(description="Names of all its candidates.")


class CurveOutline(JsonPart):
    """One workload at several loads."""

    of: str = Field(description="What its points differ in: `max_concurrency` or `request_rate`.")
    points: dict[str, float] = Field(description="Workload of each point → its value, the lowest first.")


class StudySummary(JsonFile):
    """`study.json`. A live and a recorded study have keys that the other one lacks."""

    study: str = Field(description="Name.")
    title: str = Field(description="Heading of the report.")
    model: dict[str, Any] = Field(description="Model and variants.")
    hardware: StudyHardware = Field(description="Accelerator, kind of device, accelerators of a node, price.")
    engines: dict[str, dict[str, Any]] = Field(description="Engines with their versions.")
    objective: Objective = Field(description="Metric, basis, margin, workload that decides.")
    search: dict[str, Any] | None = Field(None, description="Strategy and what ends the search; not if recorded.")
    protocol: ProtocolSpec | None = Field(None, description="How load is sent; not if recorded.")
    loads: dict[str, dict[str, Any]] = Field(
        {}, description="Workload → what its load has of its own, in place of `protocol` and SLOs; not if recorded."
    )
    curves: dict[str, CurveOutline] = Field({}, description="Curves by name; a recorded study has none.")
    client: str | None = Field(None, description="Load client; not if recorded.")
    baseline: dict[str, Any] | str = Field(description="What everything is compared with.")
    stages: list[StageOutline] = Field(description="Stages that decide, in the order of the search.")
    workloads: dict[str, str] = Field(description="Name → title.")
    source: str | None = Field(None, description="Where a recorded study was published.")
    note: str | None = Field(None, description="Remark on a recorded study.")

    def slos_of(self, workload: str) -> dict[str, float]:
        """Limits for goodput under a workload."""
        own: dict[str, float] | None = self.loads.get(workload, {}).get("slos")
        return self.objective.slos if own is None else own

    def write(self, path: Path) -> None:
        """Writes the keys that this study has."""
        write_json(path, self.model_dump(mode="json", exclude_unset=True))


SearchedStudy = Study | RecordedStudy
SearchedPlan = Plan | RecordedPlan
"""A live plan has no `reference`, so it is no recorded one."""


def load_searched(path: Path) -> SearchedStudy:
    """The live study in a file, or the recorded study in a folder; `ConfigError` for any mistake in it."""
    return load_recorded(path) if path.is_dir() else load_study(path)


def read_plan(path: Path) -> SearchedPlan:
    """The plan of a stage, of either kind."""
    try:
        return RecordedPlan.read(path)
    except ServelabError:
        return Plan.read(path)


LIVE, RECORDED = "studies", "recorded"
"""Kinds of study. A search, `<kind>/<study>`, is the folder below results/ that a study's tables and report are in."""


def name_of(search: str) -> str:
    """The name of a study."""
    return search.split("/")[1]


def is_live(search: str) -> bool:
    """Whether a study is measured here, rather than read from logs."""
    return search.startswith(f"{LIVE}/")


def study_path(search: str) -> Path:
    """Where a study is read from: a live one's file, a recorded one's folder."""
    return Path(f"config/{search}.yaml" if is_live(search) else f"config/{search}")


def study_file(search: str) -> str:
    """The file in which a study of either kind is written."""
    return str(study_path(search)) if is_live(search) else f"config/{search}/study.yaml"
