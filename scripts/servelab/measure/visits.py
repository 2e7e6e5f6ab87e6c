"""Measures a job: one visit, or a pair of visits on the same devices, a folder for each run as soon as it is done.

A failure of the candidate is a *finding*: it is recorded as the run's result. A failure of the machine is an `Outage`:
the load in progress is lost, and it is measured again later; the runs that are complete stay.

Two workflows may ask for overlapping visits at the same time. A job claims its visits (`visit_id`) before it reserves
devices, and claims each run while it measures that. So runs of one visit are never split between two server starts of
two workflows, nobody reserves a device while waiting for a claim of another visit, and the order of claims is the same
in all jobs: none waits for another in a circle.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from uuid import uuid4

from servelab.core.credentials import shell_variables
from servelab.core.errors import Outage
from servelab.core.identity import content_id, run_id
from servelab.core.processes import log_line
from servelab.core.result_lock import claim
from servelab.core.run_spec import RunSpec
from servelab.machine.device_names import WantedDevices
from servelab.machine.devices import DEVICES, Device
from servelab.machine.lease import Lease, lease
from servelab.measure.inputs import JobRun, MeasuringJob, RunInputs, longest_s, visit_id
from servelab.measure.node_check import check_node, healthy
from servelab.measure.nodes import Nodes, other_nodes
from servelab.measure.outcome import Outcome, failed_requests, write_run
from servelab.measure.run_files import RunStatus
from servelab.measure.run_folder import job_folder, make_once, read_status, say_kept, set_aside_if_broken
from servelab.measure.server import Killed
from servelab.measure.session import Session


class Saturated:
    """Curves of one visit that reached the server's limit, each with the lowest rate that did.

    A curve's points differ in their rate alone. Only a run that says so (`unless_saturated`) is left out.
    """

    def __init__(self) -> None:
        self._at: dict[str, float] = {}

    def note(self, spec: RunSpec, outcome: Outcome) -> None:
        """Remembers the rate of a run if the server could not keep up with it."""
        rate = spec.protocol.request_rate
        if rate != "inf" and outcome.saturated(spec):
            self._at[_curve(spec)] = min(rate, self._at.get(_curve(spec), rate))

    def below(self, spec: RunSpec) -> str | None:
        """Why a run is not sent: the server was saturated at a lower rate; None if it is to be sent."""
        rate, at = spec.protocol.request_rate, self._at.get(_curve(spec))
        if not spec.unless_saturated or rate == "inf" or at is None or at >= rate:
            return None
        return f"not sent at {rate:g} requests/s: the server was saturated at {at:g}"


def _curve(spec: RunSpec) -> str:
    """Equal for the points of a curve."""
    content = spec.model_dump(mode="json", exclude={"unless_saturated"})
    return content_id({**content, "protocol": {**content["protocol"], "request_rate": None}})


_FEW = 0.01
"""A smaller share of failed requests may be an accident, such as a lost connection; the second attempt counts."""

_OF_THE_LOAD = ("saturated", "round_timeout", "requests_failed", "slo_missed")
"""Failures that a busy machine may have caused."""


def measure_fairly(spec: RunSpec, attempt: Callable[[], Outcome], restart: Callable[[], None]) -> Outcome:
    """Calls `attempt` until it gives a fair result or must not be repeated; keeps the last one.

    - If the server may have been killed from outside, once more on another server start (`restart`).
    - If fewer than 1 % of the requests failed, once more on another server start.
    - If others delayed it, at most `protocol.repeat_disturbed` times: on the same server start, or on another one if
      the load failed meanwhile.

    An attempt that would not end within `longest_s` of the run, if it takes as long as the last one, is left out;
    `Outage` if that leaves nothing but a server that was killed once.
    """
    begun, left = time.monotonic(), {"killed": 1, "failed": 1, "disturbed": spec.protocol.repeat_disturbed}
    attempts = 0
    while True:
        attempts += 1
        started = time.monotonic()
        outcome = attempt()
        ended = time.monotonic()
        delay = outcome.delay()
        disturbed = delay.text if delay and delay.disturbs(spec.protocol.max_others_cpu_percent) else None
        if outcome.failure and outcome.failure.reason not in _OF_THE_LOAD:
            disturbed = None  # it fails on a quiet machine too
        cause = next((cause for cause in _causes(outcome, disturbed) if left[cause]), None)
        if cause is None:
            break
        if ended - begun + ended - started > longest_s(spec.protocol, spec.most_rounds):
            if cause == "killed":
                raise Outage(f"the server may have been killed, and there is no time to repeat it: {outcome.failure}")
            break
        left[cause] -= 1
        log_line(f"measured again ({cause}): {outcome.failure or failed_requests(outcome.table()) or disturbed}")
        if cause != "disturbed" or outcome.failure:
            restart()
    outcome.attempts, outcome.disturbed = attempts, disturbed
    return outcome


def _causes(outcome: Outcome, disturbed: str | None) -> list[str]:
    """Why an attempt is no fair result, the most serious first; empty if it is one."""
    if outcome.failure is not None:
        if isinstance(outcome.failure, Killed):
            return ["killed"]
        return ["disturbed"] if disturbed else []
    errors = outcome.table()["error"]
    failed = len(errors) - errors.null_count
    return [*(["failed"] if 0 < failed < _FEW * len(errors) else []), *(["disturbed"] if disturbed else [])]


def measure_job(job: MeasuringJob, runs: Path, found_as: Mapping[str, Sequence[str]] | None = None) -> list[RunStatus]:
    """Measures what is missing of a job into folders of `runs`, named by run id; returns the status of each run.

    A broken run (`servelab.core.seal`) is set aside first, and is then missing. `found_as` has further names of
    accelerators here.

    Raises `ConfigError` if what a missing run is to be measured with is not what it was planned with, or if the machine
    has other accelerators; `Outage` on a broken environment, a full disk or a lost client.
    """
    for run in (run for visit in job.visits for run in visit):
        set_aside_if_broken(runs / run_id(run.spec))
    measured: set[str] = set()
    if missing := _missing(job, runs):
        with ExitStack() as claims:
            for each in sorted({visit_id(visit[0].spec) for visit in missing}):
                claims.enter_context(claim(runs / each))
            if missing := _missing(job, runs):  # another workflow may have had a claim until now
                visits = [[run.inputs() for run in visit] for visit in missing]
                measured = {run_id(inputs.spec) for visit in visits for inputs in visit}
                _measure_visits(visits, runs, found_as or {})
    statuses = []
    for run in (run for visit in job.visits for run in visit):
        if (name := run_id(run.spec)) not in measured:
            say_kept(name)
        statuses.append(RunStatus.read(runs / name / "status.json"))
    return statuses


def _missing(job: MeasuringJob, runs: Path) -> list[list[JobRun]]:
    """The runs of each visit that are not complete; a visit without one is left out."""
    visits = [[run for run in visit if not read_status(runs / run_id(run.spec), RunStatus)] for visit in job.visits]
    return [visit for visit in visits if visit]


def _measure_visits(visits: Sequence[Sequence[RunInputs]], runs: Path, found_as: Mapping[str, Sequence[str]]) -> None:
    for visit in visits:
        for inputs in visit:
            inputs.check()
    hardware = [visit[0].spec.hardware for visit in visits]
    job_id, count = uuid4().hex, max(each.per_node for each in hardware)
    names = list(dict.fromkeys(each.accelerator for each in hardware))
    wanted = WantedDevices(DEVICES.get(hardware[0].device), names, found_as)

    def among(devices: Sequence[Device], giver: str) -> Sequence[Device]:
        return healthy(wanted.among(devices, giver), count)

    with (
        lease(hardware[0].device, count, among) as leased,
        other_nodes(leased.allocation, hardware[0].nodes, wanted, count) as nodes,
        job_folder(runs, job_id) as folder,
    ):
        wanted.check(leased.devices, leased.allocation.giver())  # again: by now it is known whether a GPU is split
        measuring = _Job(job_id, leased, nodes, runs)
        for number, visit in enumerate(visits):
            (folder / str(number)).mkdir()
            measuring.visit(visit, folder / str(number))


def _check_node(visit: Sequence[RunInputs], devices: Sequence[Device]) -> None:
    """`EnvironmentFault` for what would make the start of a visit's server fail here."""
    first = visit[0]
    if first.engine.already_runs:
        return
    shell = shell_variables()
    check_node(
        devices,
        {**shell.needed, **shell.passed, **first.spec.environment_variables},
        first.environment.packages,
        first.model_path,
        requests_at_once=max(each.spec.protocol.max_concurrency or 0 for each in visit),
        is_container=first.environment.image is not None,
    )


class _Job:
    """A job whose devices are reserved."""

    def __init__(self, job_id: str, leased: Lease, nodes: Nodes | None, runs: Path) -> None:
        self._id, self._leased, self._nodes, self._runs = job_id, leased, nodes, runs
        self._counted_to = time.monotonic()
        """Until then, the time of the devices is in a run's `accelerator_s`."""

    def visit(self, visit: Sequence[RunInputs], folder: Path) -> None:
        """Measures the runs of a visit; its server has ended when the last run's folder appears."""
        spec = visit[0].spec
        leased = self._leased.part(spec.hardware.per_node)
        where = f"{leased.names} of each of {spec.hardware.nodes} nodes" if self._nodes else leased.names
        log_line(f"serving {spec.model.id} with {spec.engine.name} on {where}, start {spec.start}")
        _check_node(visit, leased.devices)
        startup_timeout_s = max(inputs.spec.protocol.startup_timeout_s for inputs in visit)
        session, saturated = Session(visit[0], leased, folder, startup_timeout_s, self._nodes), Saturated()
        try:
            for inputs in visit:
                output = self._runs / run_id(inputs.spec)
                log_line(f"run {output.name}: {inputs.spec.workload.kind} with {inputs.spec.client.name}")
                make_once(output, partial(self._run, session, saturated, inputs, inputs is visit[-1]), RunStatus)
        finally:
            session.stop()

    def _run(self, session: Session, saturated: Saturated, inputs: RunInputs, is_last: bool, work: Path) -> None:
        started_at = datetime.now(UTC)
        if why := saturated.below(inputs.spec):
            log_line(why)
            outcome = session.leave_out(inputs, why)
        else:
            outcome = measure_fairly(inputs.spec, lambda: session.measure(inputs, work), session.restart_later)
            saturated.note(inputs.spec, outcome)
        if is_last:
            session.stop()  # the time that it takes is the run's too
        now = time.monotonic()
        accelerator_s = (now - self._counted_to) * len(self._leased.devices) * inputs.spec.hardware.nodes
        accounts = {"job_id": self._id, "accelerator_s": accelerator_s, "work": inputs.model.work}
        write_run(work, inputs.spec, outcome, started_at, **accounts)
        self._counted_to = now
