"""A recorded study, as a user writes it: `config/recorded/<study>/study.yaml` beside the logs it names.

`load_recorded` turns every mistake into one `ConfigError` line that names file, key and the nearest valid name.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from servelab.core.errors import ConfigError
from servelab.core.registry import nearest
from servelab.core.run_spec import Line, Strict
from servelab.core.yaml_file import read_config
from servelab.metrics.definitions import METRICS
from servelab.study.recorded.commands import read_command
from servelab.study.recorded.published_claims import Claim, candidates_of
from servelab.study.search_keys import Objective
from servelab.study.study import COMPARISON, StudyHardware
from servelab.study.workload_loads import NAME

FILE = "study.yaml"
LOGS = "logs"


class RecordedModel(Strict):
    """The model that was served."""

    id: str = Field(description="Name of the model, as its repository is called.")
    names: list[str] = Field([], description="Other names by which commands call it.")
    variants: dict[str, str] = Field(
        {}, description="Other sets of weights: the name that candidates use → the name in commands."
    )

    config: dict[str, Any] = Field(
        {},
        description="Keys of its `config.json`, for the physical limit (docs/reference/metrics.md): `model_type`, "
        "sizes, `quantization_config`. Without them there is no limit.",
    )
    variant_configs: dict[str, dict[str, Any]] = Field(
        {}, description="Variant → the keys in which its `config.json` differs; null removes a key."
    )

    def config_of(self, name: str) -> dict[str, Any] | None:
        """Keys of a variant's `config.json`; None if they are not given."""
        if not self.config or (name != "base" and name not in self.variant_configs):
            return None
        keys = self.config | self.variant_configs.get(name, {})
        return {key: value for key, value in keys.items() if value is not None}

    def variant_id(self, name: str) -> str:
        """The model name of a variant; `base` is the model itself."""
        return self.id if name == "base" else self.variants[name]

    def is_of_model(self, name: str) -> bool:
        """True where a model name is this model's, or says it is a variant of it.

        A variant's name has the model's at its front: `Qwen3-14B-FP8` is of `Qwen/Qwen3-14B`, `Qwen3-8B-W8A8` is not.
        """
        last = name.rstrip("/").rsplit("/", 1)[-1].lower()
        own = (each.rsplit("/", 1)[-1].lower() for each in (self.id, *self.names))
        return any(last == each or last.startswith((f"{each}-", f"{each}_")) for each in own)


class RecordedEngine(Strict):
    """One engine at one version."""

    version: Line = Field(description="Version, as the publication gives it.")
    title: Line | None = Field(None, description="Name in tables. Default: the key.")
    program: str | None = Field(
        None, description="How its serving commands begin, without variables; others are another engine's."
    )

    @property
    def engine(self) -> str | None:
        """Its name, where the key is not; as `servelab.study.study.StudyEngine` has it."""
        return self.title


class RecordedWorkload(Strict):
    """The load that was sent, as far as it is known."""

    title: Line
    prompts: int = Field(ge=1, description="Requests that were to be sent: what successes are counted against.")
    input_tokens: int | None = Field(None, ge=1, description="Length of each prompt; null where it varies.")
    output_tokens: int | None = Field(None, ge=1, description="Length of each output; null where it varies.")
    request_rate: float | Literal["inf"] = Field("inf", description="Requests per second.")
    max_concurrency: int | None = Field(None, ge=1, description="Most requests in flight, where it was limited.")
    command: str | None = Field(None, description="Command of the load client, where it is known.")
    note: str | None = None


Outcome = Literal["ok", "crash", "unsupported", "not run"]


class RecordedCandidate(Strict):
    """A configuration that was tried, and what came of it."""

    name: str = Field(pattern=NAME, description="Short name; claims call it `<stage>/<name>`.")
    label: Line | None = Field(None, description="Name in tables and charts. Default: its `name`.")
    engine: str = Field(description="Key of `engines`: the engine that the publication says it is.")
    model: str = Field("base", description="Weights that were served: `base` or a key of `model.variants`.")
    command: str = Field(description="Complete serving command, as it is published for this candidate.")
    commands: dict[str, str] = Field(
        {},
        description="Workload → complete serving command that its logs were made with, where it is not `command`.",
    )
    printed: str | None = Field(
        None, description="What the publication prints of the command, where that is not the whole of it."
    )
    accelerators: int = Field(1, ge=1, description="Accelerators it used.")
    outcome: Outcome = Field(
        "ok",
        description="`ok`, or what became of it: of `crash` and `unsupported`, `message` says more; `not run` is a "
        "command that was published without any run.",
    )
    message: str | None = Field(
        None, description="The log line that explains the failure, as the log or the publication prints it."
    )
    logs: dict[str, list[str]] = Field(
        {}, description="Workload → files in `logs/`, one for each time it was measured; equal figures count once."
    )
    note: str | None = None

    @property
    def title(self) -> str:
        """Its name in tables."""
        return self.label or self.name

    def command_on(self, workload: str) -> str:
        """The serving command of its logs on a workload."""
        return self.commands.get(workload, self.command)

    @model_validator(mode="after")
    def _has_an_end(self) -> RecordedCandidate:
        if self.outcome == "ok" and not self.logs:
            raise ValueError("it has neither `logs` nor an `outcome` (`crash`, `unsupported` or `not run`)")
        if self.outcome == "not run" and (self.logs or self.message):
            raise ValueError("`outcome: not run` has neither `logs` nor a `message`")
        if self.outcome in ("crash", "unsupported") and (self.logs or not self.message):
            raise ValueError(f"`outcome: {self.outcome}` needs a `message` and no `logs`")
        return self


class RecordedStage(Strict):
    """One question of the search; it is compared with what the last stage ended with."""

    name: str = Field(pattern=NAME, description="Short name: folder and key.")
    title: Line | None = Field(None, description="Heading in the report.")
    candidates: list[RecordedCandidate] = Field(min_length=1)


class RecordedStudy(Strict):
    """Logs, what they were made with, and what was claimed on them."""

    study: str = Field(pattern=NAME, description="Name: the folder's.")
    title: Line = Field(description="Heading of the report.")
    source: str | None = Field(None, description="Where it was published.")
    model: RecordedModel
    hardware: StudyHardware
    engines: dict[Line, RecordedEngine] = Field(min_length=1)
    objective: Objective
    workloads: dict[str, RecordedWorkload] = Field(min_length=1, description="Workloads by name.")
    baseline: str = Field(description="The candidate everything is compared with, as `<stage>/<candidate>`.")
    stages: list[RecordedStage] = Field(min_length=1, description="Questions, in order.")
    claims: list[Claim] = Field([], description="What was published on these logs.")
    note: str | None = None

    @cached_property
    def candidates(self) -> dict[str, RecordedCandidate]:
        """Every candidate by `<stage>/<candidate>`, in order."""
        return {f"{stage.name}/{each.name}": each for stage in self.stages for each in stage.candidates}

    @cached_property
    def stage_names(self) -> list[str]:
        """Stages in order, the reserved last one included."""
        return [*(stage.name for stage in self.stages), COMPARISON]

    @cached_property
    def model_names(self) -> dict[str, str]:
        """Each way to write the study's model → its id."""
        return dict.fromkeys(self.model.names, self.model.id)

    def engine_name(self, alias: str) -> str:
        """An engine's name in tables."""
        return self.engines[alias].title or alias

    def stage(self, name: str) -> RecordedStage:
        """The stage of that name."""
        return next(stage for stage in self.stages if stage.name == name)

    def log_files(self) -> Iterator[tuple[str, str, str]]:
        """Every log that is named: candidate as `<stage>/<candidate>`, workload, file name. It may not be there."""
        for reference, candidate in self.candidates.items():
            for workload, files in candidate.logs.items():
                for file in files:
                    yield reference, workload, file


def load_recorded(folder: Path) -> RecordedStudy:
    """The recorded study in a folder, with all its names and files checked; `ConfigError` otherwise."""
    file = folder / FILE
    study = read_config(file, RecordedStudy)
    if study.study != folder.name:
        raise ConfigError(f"{file}: study: `{study.study}` must be the folder's name, `{folder.name}`")
    for key, problem in _problems(study, folder):
        raise ConfigError(f"{file}: {key}: {problem}")
    return study


def _problems(study: RecordedStudy, folder: Path) -> Iterator[tuple[str, str]]:
    """Every mistake that no single field shows: its key and what is wrong."""
    workloads, candidates = list(study.workloads), list(study.candidates)
    for metric in (study.objective.metric, *study.objective.constraints):
        yield from _unknown("objective", metric, METRICS.names(), "metric")
    yield from _unknown("objective.on", study.objective.on, workloads, "workload")
    for variant in study.model.variant_configs:
        yield from _unknown("model.variant_configs", variant, list(study.model.variants), "model variant")
    yield from _twice("stages", [COMPARISON, *(stage.name for stage in study.stages)])
    for position, stage in enumerate(study.stages):
        key = f"stages.{position}.candidates"
        yield from _twice(key, [each.name for each in stage.candidates])
        yield from _twice(key, [each.title for each in stage.candidates])
        for number, candidate in enumerate(stage.candidates):
            yield from _candidate_problems(study, f"{key}.{number}", candidate)
    yield from _unknown("baseline", study.baseline, candidates, "candidate")
    if study.objective.on not in study.candidates[study.baseline].logs:
        yield "baseline", f"`{study.baseline}` has no log of `{study.objective.on}`, the workload that decides"
    for position, claim in enumerate(study.claims):
        key = f"claims.{position} ({claim.where})"
        for reference in candidates_of(claim):
            yield from _unknown(key, reference, candidates, "candidate")
        names = {"workload": workloads, "metric": METRICS.names(), "stage": study.stage_names[:-1]}
        for kind in (each for each in names if hasattr(claim, each)):
            yield from _unknown(f"{key}.{kind}", getattr(claim, kind), names[kind], kind)
    yield from _log_problems(study, folder)


def _candidate_problems(study: RecordedStudy, key: str, candidate: RecordedCandidate) -> Iterator[tuple[str, str]]:
    yield from _unknown(f"{key}.engine", candidate.engine, list(study.engines), "engine of this study")
    yield from _unknown(f"{key}.model", candidate.model, ["base", *study.model.variants], "model variant")
    if candidate.accelerators > study.hardware.per_node * study.hardware.nodes:
        more = f"{candidate.accelerators} is more than the {study.hardware.per_node} of hardware.per_node"
        yield f"{key}.accelerators", more
    commands = {f"commands.{workload}": command for workload, command in candidate.commands.items()}
    for place, command in {"command": candidate.command, **commands}.items():
        try:
            read_command(command)
        except ValueError as error:
            yield f"{key}.{place}", f"not a command: {error}"
    for name in ("logs", "commands"):
        for workload in getattr(candidate, name):
            yield from _unknown(f"{key}.{name}", workload, list(study.workloads), "workload")


def _log_problems(study: RecordedStudy, folder: Path) -> Iterator[tuple[str, str]]:
    """Mistakes in the names of logs. A log that is not there is none, unless a file that nobody names may be it."""
    there = sorted(path.name for path in (folder / LOGS).glob("*") if path.is_file())
    every = {file for _, _, file in study.log_files()}
    left = [file for file in there if file not in every]
    named: dict[str, str] = {}
    for reference, workload, file in study.log_files():
        key = f"{reference}.logs.{workload}"
        if left or "/" in file:
            yield from _unknown(key, file, there, f"file in {folder / LOGS}")
        if file in named:
            yield key, f"`{file}` is already the log of {named[file]}"
        named[file] = f"{reference}, {workload}"
    for file in left:
        yield LOGS, f"no candidate names `{file}`; add it to a candidate's `logs` or remove it"


def _unknown(key: str, name: str, valid: list[str], kind: str) -> Iterator[tuple[str, str]]:
    if name not in valid:
        yield key, f"unknown {kind} `{name}`{nearest(name, valid)}"


def _twice(key: str, names: list[str]) -> Iterator[tuple[str, str]]:
    for number, name in enumerate(names):
        if name in names[:number]:
            yield key, f"`{name}` is there twice" + (", or a reserved name" if name == COMPARISON else "")
