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
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from uuid import uuid4

from servelab.core.errors import ServelabError
from servelab.core.identity import run_id
from servelab.core.result_lock import claim
from servelab.core.ssh_signature import SigningKey, check_key
from servelab.machine.device_names import StatedName, Wanted
from servelab.machine.devices import DEVICES
from servelab.machine.lease import Lease, lease
from servelab.measure.inputs import RunInputs
from servelab.measure.job import Job, JobRun, visit_id
from servelab.measure.nodes import Nodes, other_nodes
from servelab.measure.outcome import Accounts, log_line, write_run
from servelab.measure.repetition import Measured, measure_fairly
from servelab.measure.run_files import RunStatus
from servelab.measure.run_folder import job_folder, make_once, read_status, say_kept, set_aside_if_broken
from servelab.measure.saturated import Saturated
from servelab.measure.session import Session
from servelab.measure.signed_run import sign_run


def measure_job(
    job: Job,
    runs: Path,
    stated: Mapping[str, StatedName] | None = None,
    key: SigningKey | None = None,
    *,
    use_imported: bool = True,
) -> list[RunStatus]:
    """Measures what is missing of a job into folders of `runs`, named by run id; returns the status of each run.

    A broken run (`servelab.core.seal`) is set aside first, and is then missing; so is one that was restored from an
    archive, without `use_imported`. `stated` says how accelerators may be
    named here.

    Raises `ConfigError` if what a missing run is to be measured with is not what it was planned with, if the machine
    has other accelerators, or if the `key` that is to sign the runs cannot; `Outage` on a broken environment, a full
    disk or a lost client.
    """
    for run in (run for visit in job.visits for run in visit):
        set_aside_if_broken(runs / run_id(run.spec), use_imported=use_imported)
    measured: set[str] = set()
    if missing := _missing(job, runs):
        with ExitStack() as claims:
            for each in sorted({visit_id(visit[0].spec) for visit in missing}):
                claims.enter_context(claim(runs / each))
            if missing := _missing(job, runs):  # another workflow may have had a claim until now
                visits = [[run.inputs() for run in visit] for visit in missing]
                measured = {run_id(inputs.spec) for visit in visits for inputs in visit}
                if key:
                    check_key(key)
                _measure_visits(visits, runs, stated or {}, key)
    statuses = []
    for run in (run for visit in job.visits for run in visit):
        if (name := run_id(run.spec)) not in measured:
            say_kept(name)
        statuses.append(RunStatus.read(runs / name / "status.json"))
    return statuses


def _missing(job: Job, runs: Path) -> list[list[JobRun]]:
    """The runs of each visit that are not complete; a visit without one is left out."""
    visits = [[run for run in visit if not read_status(runs / run_id(run.spec), RunStatus)] for visit in job.visits]
    return [visit for visit in visits if visit]


def _measure_visits(
    visits: Sequence[Sequence[RunInputs]], runs: Path, stated: Mapping[str, StatedName], key: SigningKey | None
) -> None:
    for visit in visits:
        for inputs in visit:
            inputs.check()
    hardware = [visit[0].spec.hardware for visit in visits]
    job_id, count = uuid4().hex, max(each.per_node for each in hardware)
    names = list(dict.fromkeys(each.accelerator for each in hardware))
    wanted = Wanted(DEVICES.get(hardware[0].device), names, stated)
    with (
        lease(hardware[0].device, count, wanted.among) as leased,
        other_nodes(leased.allocation, hardware[0].nodes, wanted, count) as nodes,
        job_folder(runs, job_id) as folder,
    ):
        wanted.check(leased.devices, leased.allocation.giver())  # again: by now it is known whether a GPU is split
        measuring = _Job(job_id, leased, nodes, runs, key)
        for number, visit in enumerate(visits):
            (folder / str(number)).mkdir()
            measuring.visit(visit, folder / str(number))


class _Job:
    """A job whose devices are reserved."""

    def __init__(self, job_id: str, leased: Lease, nodes: Nodes | None, runs: Path, key: SigningKey | None) -> None:
        self._id, self._leased, self._nodes, self._runs, self._key = job_id, leased, nodes, runs, key
        self._counted_to = time.monotonic()
        """Until then, the time of the devices is in a run's `accelerator_s`."""
        # those of other nodes are not measured, and the sum is what counts
        self._rates = None if nodes else leased.kind.measured_rates(leased.devices)

    def visit(self, visit: Sequence[RunInputs], folder: Path) -> None:
        """Measures the runs of a visit; its server has ended when the last run's folder appears."""
        spec = visit[0].spec
        leased = self._leased.part(spec.hardware.per_node)
        where = f"{leased.names} of each of {spec.hardware.nodes} nodes" if self._nodes else leased.names
        log_line(f"serving {spec.model.id} with {spec.engine.name} on {where}, start {spec.start}")
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
            kept = Measured(session.leave_out(inputs, why), attempts=0, disturbed=None)
        else:
            kept = measure_fairly(inputs.spec, lambda: session.measure(inputs, work), session.restart_later)
            saturated.note(inputs.spec, kept.outcome)
        if is_last:
            session.stop()  # the time that it takes is the run's too
        now = time.monotonic()
        accelerator_s = (now - self._counted_to) * len(self._leased.devices) * inputs.spec.hardware.nodes
        accounts = Accounts(
            self._id, kept.attempts, kept.disturbed, accelerator_s, started_at, inputs.model.work, self._rates
        )
        status = write_run(work, inputs.spec, kept.outcome, accounts)
        self._counted_to = now
        if self._key:
            self._sign(work, status, self._key)

    def _sign(self, work: Path, status: RunStatus, key: SigningKey) -> None:
        """Signs a run. A key that could sign when the job began, and no longer can, does not cost the measurement."""
        try:
            sign_run(work, status, key)
        except ServelabError as error:
            log_line(f"run {status.run_id} is kept without a signature: {error}")
