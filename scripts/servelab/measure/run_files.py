"""The JSON files of a measured run: `status.json` and `manifest.json`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pydantic import Field

from servelab.assets.model_work import ModelWork
from servelab.core.files import JsonFile, JsonPart
from servelab.core.identity import content_id
from servelab.core.run_spec import ClientSpec, ModelFormat, ModelSource
from servelab.core.seal import IMPORTED, Seal
from servelab.engines.endpoint import Asked
from servelab.machine.cpu import CpuSettings
from servelab.machine.devices import DeviceSettings
from servelab.machine.lease import DevicePlacement
from servelab.measure.load import LoadStats
from servelab.metrics.capacity import CapacityStep

_DIGEST_LENGTH = 12
_BRIEF = ("accelerator", "driver", "runtime", "kernel")


class PlaceFacts(JsonPart):
    """Where a run was measured; nulls are unknown. If its devices differ in a fact, all values are in it.

    Two places are equal if these facts are: what may change a speed and is not in a run's specification. Not among
    them are the host's name, the job, the devices' number and numbers, and the size of the host's memory.
    """

    accelerator: str | None = Field(None, description="The accelerator as the vendor's tool names it.")
    driver: str | None = Field(None, description="Version of its driver.")
    runtime: str | None = Field(None, description="Newest CUDA that the driver supports, or the host's CANN.")
    mig_mode: str | None = Field(None, description="`Enabled` if a GPU is split into instances.")
    ecc_mode: str | None = Field(None, description="`Enabled` if its memory corrects errors.")
    power_limit: str | None = Field(None, description="Power limit that is set, in W.")
    core_clock: str | None = Field(None, description="Application clock of a GPU, rated clock of an NPU, in MHz.")
    memory_clock: str | None = Field(None, description="Application clock of a GPU's memory, in MHz.")
    cpu: str | None = Field(None, description="Model of the host's CPU.")
    cpus: str | None = Field(None, description="CPUs of the host.")
    cpus_usable: str | None = Field(None, description="CPUs that the run could use, if they are what served.")
    kernel: str | None = Field(None, description="Release of the host's kernel.")
    microcode: str | None = Field(None, description="Revision of the CPU's microcode.")
    governor: str | None = Field(None, description="Governor of the CPU's clocks.")
    boost: str | None = Field(None, description="`on` or `off`: whether clocks above the base clock are allowed.")
    highest_mhz: str | None = Field(None, description="Highest clock of the CPU that is allowed, in MHz.")
    smt: str | None = Field(None, description="`on` or `off`: whether cores have several hardware threads.")
    hypervisor: str | None = Field(None, description="Vendor of the host's hypervisor.")

    @property
    def facts(self) -> dict[str, str]:
        """The facts that are known."""
        return self.model_dump(mode="json", exclude_none=True)

    @property
    def digest(self) -> str:
        """The name of the place in tables: equal for equal places."""
        return place_digest(self.facts)


def place_digest(facts: Mapping[str, str]) -> str:
    """The name of a place with these facts."""
    return content_id(dict(facts))[:_DIGEST_LENGTH]


def place_brief(facts: Mapping[str, str]) -> str:
    """The facts of a place that change most often: accelerator, driver, runtime and kernel."""
    return ", ".join(fact_text(name, facts[name]) for name in _BRIEF if name in facts)


def fact_text(name: str, value: str) -> str:
    """`driver 570.86.10`; an accelerator's name says what it is."""
    return value if name == "accelerator" else f"{name.replace('_', ' ')} {value}"


class RunStatus(JsonFile):
    """`status.json` of a run."""

    run_id: str = Field(description="Run: the name of its folder, a hash of its specification.")
    outcome: str = Field(description="`ok`, `failed`, or `saturated`: not sent, as a lower rate saturated the server.")
    reason: str | None = Field(description="Why there are no figures: see below; null for `ok`.")
    message: str | None = Field(description="The line that explains a failure, or how many requests failed.")
    log_lines: list[str] = Field(description="Lines of the server's log around it.")
    rounds: int = Field(description="Rounds measured.")
    requests: int = Field(description="Requests of all rounds.")
    requests_failed: int = Field(description="How many of these failed.")
    success_rate: float = Field(description="Successful requests / requests.")
    objective_rounds: list[float] = Field([], description="The objective in each round, in the metric's unit.")
    steps: list[CapacityStep] = Field(
        [], description="Of a search for capacity: each load that was sent, in order; its records are in steps.parquet."
    )
    client_rounds: list[LoadStats] = Field([], description="What each round cost the load client.")
    server_starts: int | None = Field(
        None, description="Server starts that served its rounds; null for a server that already ran."
    )
    start_id: str | None = Field(None, description="The server start, or the visit, that served it: a random id.")
    job_id: str | None = Field(None, description="The job that measured it, a random id; a pair's runs have the same.")
    attempts: int = Field(1, description="Times it was measured: again if disturbed, killed, or a request failed.")
    place: PlaceFacts | None = None
    work: ModelWork | None = None
    disturbed: str | None = Field(
        None, description="What disturbed the last attempt, which counts: a failure is then no result; null if nothing."
    )
    others_percent: float | None = Field(
        None, description="Share of the machine's CPUs that others or the hypervisor had then; null unless disturbed."
    )
    startup_s: float | None = Field(description="Seconds until the server start that served it was healthy.")
    load_s: float = Field(description="Seconds under load, over all rounds.")
    accelerator_s: float = Field(description="Accelerator-seconds reserved since the job's last run.")
    started_at: str = Field(description="ISO 8601, UTC.")
    finished_at: str = Field(description="ISO 8601, UTC.")
    seal: Seal | None = Field(None, description="Digests of all files of the run; null if an earlier version wrote it.")

    @property
    def is_ok(self) -> bool:
        """Whether the run gave figures."""
        return self.outcome == "ok"


def fault_file(run: Path) -> Path:
    """Where the job that is named by the run in this folder leaves `kind` and `reason` of an error, as JSON."""
    return run.parents[1] / f"logs/measure/{run.name}.json"


class ManifestEngine(JsonPart):
    """The engine that served."""

    name: str = Field(description="Engine.")
    version: str = Field(description="Version, as the engine reports it.")


class ManifestEnvironment(JsonPart):
    """The environment that it ran in."""

    runtime: str = Field(description="What it runs in.")
    image: str | None = Field(None, description="Container image; null if there is none.")
    lock_sha256: str = Field(description="sha256 of the file that describes the environment.")
    packages: dict[str, str] = Field(description="Version of every package.")


class ManifestShell(JsonPart):
    """Variables of the shell that the workflow was started in, by name."""

    passed: list[str] = Field(description="Passed to the server because the site names them.")
    needed: list[str] = Field(description="Passed to the server because any program needs them.")
    kept_out: list[str] = Field(description="Set there, could change the server, and did not reach it.")


class ManifestModel(JsonPart):
    """The model's files."""

    format: ModelFormat = Field(description="Format of the weights.")
    source: ModelSource = Field(description="Where they came from.")
    conversion: str | None = Field(None, description="Converter and its version; null if they are served as fetched.")


class ManifestWorkload(JsonPart):
    """The load that was sent."""

    requests_sha256: str = Field(description="sha256 of the workload's `requests.parquet`.")
    seed: int | None = Field(description="Seed of the workload.")


class ManifestDevice(JsonPart):
    """An accelerator that it had."""

    index: str = Field(description="Its number on the machine.")
    name: str = Field(description="Its model.")
    driver: str | None = Field(description="Version of its driver.")
    memory_bytes: int | None = Field(description="Its memory.")
    settings: DeviceSettings | None = None


class MeasuringMachine(JsonPart):
    """The machine that it ran on."""

    cpu: str = Field(description="Model of the CPU.")
    cpu_settings: CpuSettings | None = None
    cpus: int | None = Field(description="CPUs of the machine.")
    cpus_usable: int = Field(description="CPUs that the run could use.")
    memory_bytes: int = Field(description="Memory of the machine.")
    kernel: str = Field(description="Release of the kernel.")
    architecture: str = Field(description="Instruction set.")
    python: str = Field(description="Version of the workflow's Python.")


class GitState(JsonPart):
    """The checkout of the workflow; nulls outside a checkout."""

    commit: str | None = Field(description="Commit of the workflow.")
    dirty: bool | None = Field(description="Whether tracked files were changed.")


class ManifestEndpoint(JsonPart):
    """A server that already ran, as it was visited."""

    asked: Asked
    process_seen: bool = Field(description="Whether it runs on this machine, and its use of it was sampled.")
    not_known: dict[str, str] = Field(description="What cannot be known of it: what → why.")


class ManifestNode(JsonPart):
    """Another node of a run on several nodes."""

    command: list[str] = Field([], description="Command of its part of the server.")
    environment_variables: dict[str, str] = Field({}, description="Environment variables set for its part.")
    devices: list[ManifestDevice] = Field(description="Accelerators that the run had there.")
    placement: DevicePlacement
    machine: MeasuringMachine


class ManifestReplica(JsonPart):
    """One of several servers of a run."""

    command: list[str] = Field(description="Its command as it ran.")
    environment_variables: dict[str, str] = Field(description="Environment variables set for it.")
    cpus: list[int] = Field([], description="CPUs that it was pinned to; empty for any.")


class ManifestBalancer(JsonPart):
    """What spread the requests over them."""

    name: str = Field(description="Balancer.")
    version: str | None = Field(None, description="Its release, as it prints it; null if it prints none.")
    command: list[str] = Field([], description="Its command as it ran; empty for the load client.")
    files: dict[str, str] = Field({}, description="Files that it read, by name.")


class RunManifest(JsonFile):
    """`manifest.json`: what a run was made with.

    No user's or host's name is in it, but for `placement.batch.node` of each node and the address of a server that
    already ran.
    """

    run_id: str = Field(description="Run: the name of its folder, a hash of its specification.")
    engine: ManifestEngine
    environment: ManifestEnvironment
    command: list[str] = Field(description="The server's command as it ran.")
    environment_variables: dict[str, str] = Field(
        description="Environment variables set for the server, with those that the site passes."
    )
    shell: ManifestShell | None = None
    model: ManifestModel
    workload: ManifestWorkload
    client: ClientSpec = Field(description="Load client, its version, and the sha256 of its environment's lock.")
    devices: list[ManifestDevice] = Field(description="Accelerators that it had.")
    placement: DevicePlacement | None = None
    machine: MeasuringMachine
    git: GitState
    endpoint: ManifestEndpoint | None = Field(
        None, exclude_if=lambda value: value is None, description="The server, if it already ran; missing otherwise."
    )
    other_nodes: list[ManifestNode] = Field(
        [],
        exclude_if=lambda value: not value,
        description="The run's other nodes, by rank; missing for a run on one node.",
    )
    replicas: list[ManifestReplica] = Field(
        [],
        exclude_if=lambda value: not value,
        description="Its servers, if they are several; `command` is the first's.",
    )
    balancer: ManifestBalancer | None = Field(
        None, exclude_if=lambda value: value is None, description="What is in front of them; missing for one server."
    )


class Import(JsonPart):
    """One time that the run was taken from an archive or another results folder."""

    archive: str | None = Field(description="Name of the archive's file; null if it was no archive.")
    archive_sha256: str | None = Field(description="sha256 of the archive.")
    study: str | None = Field(description="Study of the archive.")
    results_folder: str | None = Field(None, description="The results folder, as `runs_from` names it; else null.")
    imported_at: str = Field(description="ISO 8601, UTC.")
    archive_signed_by: str | None = Field(description="Who signed the archive; null if that is not known.")

    @property
    def origin(self) -> str:
        """The archive or the results folder."""
        return self.archive or self.results_folder or "elsewhere"


class ImportedRun(JsonFile):
    """`imported.json`; a run that was measured here has none."""

    run_id: str = Field(description="Run: the name of its folder.")
    imports: list[Import] = Field(min_length=1, description="From where, the latest last.")


def read_import(folder: Path) -> ImportedRun | None:
    """The mark of the run in a folder; None if it was measured here. A broken mark is a `ServelabError`."""
    file = folder / IMPORTED
    return ImportedRun.read(file) if file.exists() else None
