"""What charts and reports read beside tables: a study's summary, its decisions and its recommendation.

These types hold what is read, so that drawing depends neither on engines nor on planning.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from servelab.errors import ServelabError
from servelab.spec import ProtocolSpec
from servelab.study import Hardware, Objective


class Input(BaseModel):
    """What another rule wrote for several readers: fields that this reader has no use for are allowed."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class StageOutline(Input):
    """A stage in the order it was searched, with the labels of all its candidates."""

    name: str
    title: str
    candidates: list[str]


class Study(Input):
    """`study.json`."""

    study: str
    title: str
    hardware: Hardware
    objective: Objective
    protocol: ProtocolSpec | None = None
    """How it was measured; None for a study whose runs are recorded logs."""
    workloads: dict[str, str]
    stages: list[StageOutline]


class Choice(Input):
    """A candidate by its label."""

    candidate: str


class Verdict(Input):
    """What became of one candidate; the change is against the incumbent, on the objective's basis."""

    candidate: str
    verdict: str
    change_percent: float | None
    change_ci95_low_percent: float | None
    change_ci95_high_percent: float | None
    why: str
    pair_id: str | None = None
    """The change is from this pair, measured again side by side, and not from the runs of the stage."""


class Decision(Input):
    """`decision.json` of a stage."""

    stage: str
    title: str
    applies: bool
    reason: str
    incumbent: Choice
    winner: Choice
    changed: bool
    candidates: list[Verdict]


class Improvement(Input):
    """The winner on one workload: `failed` says why there is nothing to compare."""

    workload: str
    title: str
    n: int
    failed: str | None = None
    guard: str = "holds"
    """Whether the winner holds its ground here: `holds`, `loses` or `unclear`."""
    guard_why: str = ""


class BestOfWorkload(Input):
    """The configuration to use on one workload."""

    workload: str
    title: str
    candidate: str
    is_winner: bool
    why: str
    command: str
    run_id: str


class Configuration(Input):
    """What serves."""

    accelerators: int


class Recommended(Input):
    """`recommended.json`."""

    command: str
    launch_command: str | None
    """As it ran here; None where nothing ran."""
    note: str | None = None
    engine: str
    engine_version: str
    model: str
    configuration: Configuration
    changed: bool
    improvements: list[Improvement]
    max_loss_percent: float = 5.0
    by_workload: list[BestOfWorkload] = []
    run_id: str
    baseline_run_id: str


Read = TypeVar("Read", bound=BaseModel)


def read(path: Path, kind: type[Read]) -> Read:
    """The typed content of a JSON file; `ServelabError` names file and key."""
    try:
        return kind.model_validate_json(path.read_bytes())
    except OSError as error:
        raise ServelabError(f"{path}: {error.strerror}") from None
    except ValidationError as error:
        first: Any = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"]) or "(whole file)"
        raise ServelabError(f"{path}: {key}: {first['msg']}") from None
