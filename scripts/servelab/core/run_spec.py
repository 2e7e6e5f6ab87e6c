"""A run's specification: everything that can change a measurement, and nothing else.

`run_id` is a hash of it, and the run's results are in `results/runs/<run_id>/`. So a run is never measured twice and
never reused wrongly. Labels, comments, key order and the study's name are not in it.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from servelab.core.files import JsonFile

ArgumentValue = str | int | float | bool | None
_LINE, _VARIABLE, _COMMIT = r"^[^\r\n]*\S[^\r\n]*$", "^[A-Za-z_][A-Za-z0-9_]*$", "^[0-9a-f]{40}$"
_WORD = r"^[^\s-]\S*$"
PATTERNS = {
    _WORD: "one word",
    _LINE: "one line of text",
    _VARIABLE: "the name of a variable: letters, digits and `_`",
    _COMMIT: "a commit, 40 hexadecimal digits, no branch or tag",
}
"""Pattern → a text of it, for messages."""
Line = Annotated[str, Field(pattern=_LINE)]
"""A text that is printed in one line, also as a comment of a script."""
Commit = Annotated[str, Field(pattern=_COMMIT)]
Word = Annotated[str, Field(pattern=_WORD)]
VariableName = Annotated[str, Field(pattern=_VARIABLE)]
Variables = dict[VariableName, str]
"""Environment variables: their names are printed in front of commands, so that each must be an identifier."""


class Strict(BaseModel):
    """Base of every typed configuration: unknown keys are errors, and values are immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)


class HubSource(Strict):
    """A model repository of the Hugging Face hub at a pinned revision."""

    kind: Literal["hub"] = "hub"
    id: str = Field(description="Repository, as `owner/name`.")
    revision: Commit = Field(description="Commit hash; a branch or tag name is refused.")
    file: str | None = Field(
        None,
        pattern=r"^[^/].*\.gguf$",
        exclude_if=lambda value: value is None,
        description="A GGUF file of the repository; of a model in parts (`-00001-of-00003.gguf`) the first, the others "
        "are fetched too. Missing: the repository's safetensors.",
    )
    whole: bool = Field(
        False,
        exclude_if=lambda value: not value,
        description="Whether every file is fetched and none has to be there: a draft or an adapter.",
    )

    @field_validator("file")
    @classmethod
    def _stays_inside(cls, file: str | None) -> str | None:
        if file is not None and {"", ".", ".."} & {*file.split("/")}:
            raise ValueError("give the file's path within the repository, without `..`")
        return file


class PackageSource(Strict):
    """One file shipped inside a wheel of the Python package index."""

    kind: Literal["package"] = "package"
    requirement: str = Field(description="Pinned requirement, as `name==version`.", pattern=r"^[\w.-]+==[\w.+!-]+$")
    member: str = Field(description="The file's path inside the wheel.")
    sha256: str = Field(description="sha256 of the file.", pattern=r"^[0-9a-f]{64}$")
    size_bytes: int = Field(description="Size of the file in bytes.", gt=0)


class PathSource(Strict):
    """A model that is already on this machine or on a shared file system."""

    kind: Literal["path"] = "path"
    path: str = Field(description="Absolute path of the model's folder or file.")
    revision: str = Field(description="Your own name for this content; change it when the content changes.")


ModelSource = Annotated[HubSource | PackageSource | PathSource, Field(discriminator="kind")]
ModelFormat = Literal["gguf", "safetensors"]
Quantization = Literal["q4_0", "q8_0", "bf16", "f16"]
QUANTIZATIONS: tuple[str, ...] = get_args(Quantization)
"""Formats that `model.variants.<name>.quantization` accepts."""


class EngineSpec(Strict):
    """The program that serves, and its environment."""

    name: str
    version: str
    runtime: str = "venv"
    environment_sha256: str = Field(description="sha256 of the environment's lock, or the image's digest.")


class ModelSpec(Strict):
    """The model that is served."""

    id: str
    variant: str
    source: ModelSource
    format: ModelFormat
    quantization: Quantization | None = Field(None, description="Number format its weights were converted to, if any.")
    conversion: str | None = Field(None, description="Converter and its version, if the source is not served as it is.")
    second_models: dict[str, HubSource] = Field(
        {},
        exclude_if=lambda value: not value,
        description="Drafts and adapters that arguments name, by repository; missing if there are none.",
    )


class HardwareSpec(Strict):
    """The accelerators it runs on."""

    accelerator: str
    device: str
    count: int = Field(gt=0, description="Accelerators, on all nodes together.")
    nodes: int = Field(
        1,
        gt=0,
        exclude_if=lambda value: value == 1,
        description="Nodes that they are on, as many on each; missing if it is one.",
    )

    replicas: int = Field(
        1,
        gt=0,
        exclude_if=lambda value: value == 1,
        description="Servers that they are divided among; missing if it is one.",
    )

    @property
    def per_node(self) -> int:
        """Accelerators on each node."""
        return self.count // self.nodes

    @property
    def per_server(self) -> int:
        """Accelerators of each server, on all nodes together; servers that share a whole machine have 1."""
        return max(1, self.count // self.replicas)


class ClientSpec(Strict):
    """The load client; its version is raised when a change affects what it measures."""

    name: str
    version: str
    environment_sha256: str | None = Field(None, description="sha256 of its environment's lock; null for Servelab's.")


Arrivals = Literal["poisson", "constant", "gamma", "replay"]


class ProtocolSpec(Strict):
    """How load is sent to the server, in addition to the workload."""

    warmup_requests: int = Field(4, ge=0, le=64, description="Requests sent before each round and not counted.")
    settle_requests: int = Field(
        0, ge=0, description="This many requests at the start of a round load the server and are not counted."
    )
    rounds: int = Field(
        3, ge=1, description="How often the load is sent on a server start, each time with empty caches."
    )
    request_rate: Annotated[float, Field(gt=0)] | Literal["inf"] = Field(
        "inf", description="Mean requests per second; `inf` sends as fast as `max_concurrency` allows."
    )
    arrivals: Arrivals = Field(
        "poisson",
        description="Gaps between requests at a finite rate: `poisson`, `constant`, `gamma` (see `burstiness`), or "
        "`replay` of the workload's own arrival times, which set the rate themselves.",
    )
    burstiness: float = Field(
        1.0, gt=0, description="Shape of `gamma` arrivals: below 1 is burstier than Poisson, above 1 more even."
    )
    ramp_up_s: float = Field(
        0.0,
        ge=0,
        description="Seconds over which the rate grows from 0; at rate `inf` the first requests are spread over them.",
    )
    max_concurrency: int | None = Field(None, ge=1, description="Most requests in flight; null is no limit.")
    duration_s: float | None = Field(
        None,
        gt=0,
        description="Seconds to send for; requests then in flight may finish. Null sends the whole workload.",
    )
    saturation_in_flight: int | None = Field(
        None,
        ge=1,
        description="End the round at this many requests in flight: the server cannot keep up with the rate.",
    )
    repeat_disturbed: int = Field(
        2,
        ge=0,
        le=5,
        description="Measure a run again at most this many times if it was disturbed; the last attempt counts.",
    )
    max_others_cpu_percent: float = Field(
        10.0,
        gt=0,
        le=100,
        description="A run is disturbed if others may have lowered its figures by more than this in a round: by twice "
        "the share of the time that server and client waited for CPUs which others had. Others' use of other CPUs does "
        "not count. 100 turns this off.",
    )
    client_processes: int = Field(1, ge=1, description="Processes of the load client; more if one core is too few.")
    startup_timeout_s: float = Field(
        600.0, gt=0, description="Seconds for the server to become healthy; the candidate fails after that."
    )
    round_timeout_s: float = Field(
        900.0, gt=0, description="Seconds for a round to finish; the candidate fails after that."
    )

    @model_validator(mode="after")
    def _is_consistent(self) -> ProtocolSpec:
        if self.arrivals in ("constant", "gamma") and self.request_rate == "inf":
            raise ValueError(f"`arrivals: {self.arrivals}` needs a finite `request_rate`")
        if self.arrivals == "replay" and (self.request_rate != "inf" or self.ramp_up_s):
            raise ValueError("`arrivals: replay` takes the workload's times; leave out `request_rate` and `ramp_up_s`")
        if self.burstiness != 1.0 and self.arrivals != "gamma":
            raise ValueError("`burstiness` is for `arrivals: gamma`")
        return self

    def shared(self, by: int) -> ProtocolSpec:
        """The part of the load that each of so many servers gets, at least 1 in flight."""
        limit, rate = self.max_concurrency, self.request_rate
        part = {"max_concurrency": limit and max(1, limit // by), "request_rate": rate if rate == "inf" else rate / by}
        return self.model_copy(update=part)


DISTURBED, FAILED, NOTHING = "disturbed", "failed", "nothing"
"""Words that choose runs to measure again; any other word is the beginning of a run's id."""

Statistic = Literal["mean", "median", "p90", "p95", "p99", "minimum", "maximum"]
"""Statistics that can have a limit."""
MOST_STEPS = 24
"""Loads that a search for capacity tries at most."""
LoadOf = Literal["max_concurrency", "request_rate"]
"""The key of a load that several loads of one workload differ in."""


class CapacitySpec(Strict):
    """The highest load that a server start sustains: searched step by step, each step a round at another load."""

    of: LoadOf = Field(description="What is raised: `request_rate` or `max_concurrency`.")
    lowest: float = Field(1.0, gt=0, description="The lowest load; it is tried first.")
    highest: float = Field(1024.0, gt=0, description="The highest load that is tried.")
    slos: dict[str, dict[Statistic, Annotated[float, Field(gt=0)]]] = Field(
        {},
        description="Limits that hold at a load within the capacity: metric → statistic → limit, `{ttft_ms: {p99: "
        "2000}, tpot_ms: {mean: 50}}`. A lower limit if higher is better.",
    )
    within_percent: float = Field(
        5.0, ge=1, le=50, description="The search ends when the loads that hold and do not hold are this near."
    )
    min_success_rate: float = Field(
        0.99, ge=0, le=1, description="A load at which fewer requests succeed is above the capacity."
    )

    @model_validator(mode="after")
    def _can_be_searched(self) -> Self:
        if self.highest <= self.lowest:
            raise ValueError(f"`highest` is {self.highest:g}, not above `lowest`, {self.lowest:g}")
        if self.of == "max_concurrency" and not (self.lowest.is_integer() and self.highest.is_integer()):
            raise ValueError("`lowest` and `highest` are numbers of requests in flight; write whole ones")
        if self.of == "max_concurrency" and not self.slos:
            raise ValueError("`max_concurrency` needs `slos`: in a closed loop nothing else ends the search")
        if empty := next((metric for metric, limits in self.slos.items() if not limits), None):
            raise ValueError(f"`slos.{empty}` names no statistic; write for example `{{p99: 2000}}`")
        return self


class ServedBalancer(Strict):
    """What spreads requests over the servers of a run: its files and command, with numbers of servers for ports."""

    name: str = Field(description="Balancer.")
    command: tuple[str, ...] = Field((), description="Command that starts it; empty if the load client spreads them.")
    files: dict[str, str] = Field({}, description="Files that it reads, by name.")


class ServedSpec(Strict):
    """The command, files and variables of the server, as its adapter renders them.

    `python`, `model`, port 0, `/folder` and `node0` stand for those of the run; a program of Servelab is named by its
    code.
    """

    command: tuple[str, ...] = Field((), description="Command that serves.")
    environment: Variables = Field({}, description="Environment variables that the adapter sets.")
    files: dict[str, str] = Field({}, description="Files that the server reads, by name.")
    request_body: dict[str, Any] = Field({}, description="Fields that each request has for this engine.")
    container: tuple[str, ...] = Field((), description="What starts its container, mounts aside; empty without one.")
    cache_reset: str | None = Field(
        None,
        description="Path of the request that empties its caches before a round; null if it is restarted for that, "
        "empty if it keeps no prompts.",
    )
    other_nodes: tuple[tuple[str, ...], ...] = Field(
        (),
        exclude_if=lambda value: not value,
        description="Commands on the other nodes of a run, by rank; missing for a run on one node.",
    )
    balancer: ServedBalancer | None = Field(
        None,
        exclude_if=lambda value: value is None,
        description="What spreads the requests over several servers; missing if one serves.",
    )


class WorkloadSpec(Strict):
    """The requests: byte for byte the same for every engine."""

    kind: str
    parameters: dict[str, Any] = Field(description="The generator's parameters, with seed and dataset sha256.")
    tokenizer: ModelSource = Field(description="The model whose tokenizer counts the tokens.")
    generator_version: str


SERVED = frozenset({"engine", "model", "options", "arguments", "environment_variables", "served", "start", "hardware"})
"""The parts of a specification that say what is served, and on which start."""
SENT = frozenset(
    {
        "workload",
        "objective",
        "slos",
        "client",
        "unless_saturated",
        "capacity",
        "keeps_answers",
        "protocol",
    }
)
"""The parts that say what is sent."""


class RunSpec(Strict, JsonFile):
    """`spec.json`: everything that can change a measurement."""

    engine: EngineSpec = Field(
        description="Engine, version, runtime, and the sha256 of its environment's lock or its image's digest."
    )
    model: ModelSpec = Field(description="Model, source of its weights, their format, quantization and conversion.")
    options: dict[str, ArgumentValue] = Field({}, description="Options of the shared vocabulary (engines.md).")
    arguments: dict[str, ArgumentValue] = Field({}, description="The engine's own arguments, as given.")
    environment_variables: Variables = Field({}, description="Environment variables of the server.")
    served: ServedSpec = Field(ServedSpec(), description="What the server is given, as rendered.")
    start: str = Field(
        "search-0", description="Which repetition: each is measured on a server start of its own (search.md)."
    )
    hardware: HardwareSpec = Field(description="Accelerator, kind of device, and how many.")
    workload: WorkloadSpec = Field(
        description="Kind of workload, its parameters (with seed and the dataset's sha256), tokenizer, generator."
    )
    objective: str = Field(description="The metric that decides.")
    slos: dict[str, float] = Field(
        {}, description="Limits of the objective, if it has any (goodput): metric → its maximum."
    )
    client: ClientSpec = Field(description="Load client, version, and the sha256 of its environment's lock.")
    unless_saturated: bool = Field(
        False,
        exclude_if=lambda value: not value,
        description="Whether it is not sent if the server start was saturated at a lower rate of its curve; missing if "
        "it always is.",
    )
    capacity: CapacitySpec | None = Field(
        None,
        exclude_if=lambda value: value is None,
        description="The search for the highest load that it sustains; missing if it is sent one load.",
    )
    keeps_answers: bool = Field(
        False,
        exclude_if=lambda value: not value,
        description="Whether its requests are questions: greedy, with a fixed seed and without `served.request_body`, "
        "so that answers end by themselves, and their texts are kept; missing if not.",
    )
    protocol: ProtocolSpec = Field(description="Warm-up, rounds, arrivals, limits in flight and in time (keys.md).")

    @property
    def natural_stops(self) -> bool:
        """Whether answers end by themselves, so that two configurations may write answers of different lengths."""
        return self.workload.parameters.get("ignore_eos") is False

    @property
    def most_rounds(self) -> int:
        """Rounds that it can take at most, a step of a search for capacity counted as one."""
        return MOST_STEPS if self.capacity else self.protocol.rounds

    def at(self, load: float) -> RunSpec:
        """The specification of one step of the search, as if that load alone were sent."""
        assert self.capacity is not None
        level = int(load) if self.capacity.of == "max_concurrency" else load
        protocol = self.protocol.model_copy(update={self.capacity.of: level})
        return self.model_copy(update={"capacity": None, "protocol": protocol})
