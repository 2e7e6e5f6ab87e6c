"""A measuring job: one visit, or a pair of visits on the same devices.

A *visit* is one start of a server of one configuration, which serves several runs one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError, model_validator

from servelab.core.errors import ConfigError
from servelab.core.identity import content_id, run_id
from servelab.core.run_spec import SERVED, ProtocolSpec, RunSpec, Strict
from servelab.core.yaml_file import describe_validation_error
from servelab.engines.runtimes import read_environment
from servelab.measure.inputs import RunInputs


class JobRun(Strict):
    """One run of a job: its specification, and the files that it is measured with."""

    spec: RunSpec
    environment: Path = Field(description="`environment.json` of the engine.")
    client_environment: Path | None = Field(None, description="`environment.json` of the load client, if it has one.")
    model: Path = Field(description="`model.json` in a format that the engine serves.")
    requests: Path = Field(description="The workload's `requests.parquet`.")

    def inputs(self) -> RunInputs:
        """What it is measured with; `ServelabError` if an environment cannot be read."""
        return RunInputs(
            spec=self.spec,
            environment=read_environment(self.environment),
            client_environment=read_environment(self.client_environment) if self.client_environment else None,
            model_json=self.model,
            requests=self.requests,
        )


class MeasuringJob(Strict):
    """The visits of a job, in order."""

    visits: Annotated[
        list[Annotated[list[JobRun], Field(min_length=1)]],
        Field(
            min_length=1,
            description="Runs of each visit, in the order of measurement: one visit, or a pair; more if studies that "
            "share a baseline ask for pairs with different winners at the same time.",
        ),
    ]

    @model_validator(mode="after")
    def _is_consistent(self) -> MeasuringJob:
        ids = [run_id(run.spec) for visit in self.visits for run in visit]
        if repeated := next((each for each in ids if ids.count(each) > 1), None):
            raise ValueError(f"run {repeated} is in it twice")
        for visit in self.visits:
            first = visit[0]
            for run in visit[1:]:
                if visit_id(run.spec) != visit_id(first.spec):
                    raise ValueError(
                        f"run {run_id(run.spec)} is of another configuration or start than {run_id(first.spec)}, the "
                        "first of its visit"
                    )
                if (run.environment, run.model) != (first.environment, first.model):
                    raise ValueError(f"run {run_id(run.spec)} has another environment or model than its visit's first")
        if len({(visit[0].spec.hardware.device, visit[0].spec.hardware.nodes) for visit in self.visits}) > 1:
            raise ValueError("the visits of a pair need the same kind of device and as many nodes")
        return self


def parse_job(text: str) -> MeasuringJob:
    """The job in a JSON text; `ConfigError` names what is wrong."""
    try:
        return MeasuringJob.model_validate_json(text)
    except ValidationError as error:
        raise ConfigError(describe_validation_error(error, "--job", MeasuringJob)) from None


def visit_id(spec: RunSpec) -> str:
    """Equal for runs that one visit may measure: of one configuration, hardware and start."""
    return content_id(spec.model_dump(mode="json", include=set(SERVED)))


CLIENT_SLACK_S = 60.0
"""Time for a client to start and to write its records, in addition to the round."""
_JOB_S = 600.0
"""Time of a job outside its rounds: Snakemake's start, reads from a busy file system, stopping the server."""
_TIMES_PAST = 3.0
"""A run may take this many times the mean of similar past runs."""


def longest_s(protocol: ProtocolSpec, rounds: int) -> float:
    """Most seconds that a number of rounds can take: each may restart the server, warm up and send load."""
    loads = 2 if protocol.warmup_requests else 1
    return rounds * (protocol.startup_timeout_s + loads * (protocol.round_timeout_s + CLIENT_SLACK_S))


def runtime_min(
    visits: Sequence[Sequence[RunSpec]], about_s: Callable[[RunSpec], float | None] = lambda spec: None
) -> int:
    """Minutes that a job requests for the runs of its visits.

    `about_s` returns the mean of similar past runs in accelerator-seconds, or None if there are none. 600 s, and for
    each visit the sum over its runs of `longest_s`, because the protocol's own limits end a run by then (it is measured
    again only within them); or, if that is less, one start-up and the sum of `3 × about_s / accelerators`, if all of
    its runs have similar past ones.
    """
    return ceil((_JOB_S + sum(_visit_s(visit, about_s) for visit in visits)) / 60)


def _visit_s(visit: Sequence[RunSpec], about_s: Callable[[RunSpec], float | None]) -> float:
    most_s = sum(longest_s(spec.protocol, spec.most_rounds) for spec in visit)
    past = [(about_s(spec), spec.hardware.count) for spec in visit]
    known = [_TIMES_PAST * seconds / count for seconds, count in past if seconds is not None]
    if len(known) < len(visit):
        return most_s
    # a mean of runs that began on a running server does not have the start-up in it
    return min(most_s, max(spec.protocol.startup_timeout_s for spec in visit) + sum(known))
