"""The results of a run's rounds, their validity as a speed, and the files that hold them."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from servelab.core.credentials import without_credentials
from servelab.core.identity import run_id
from servelab.core.processes import lines_at_ends
from servelab.core.run_spec import RunSpec
from servelab.core.seal import seal_of
from servelab.machine.cpu import CpuSettings
from servelab.machine.devices.cpu import KEY
from servelab.measure.load import LoadResult, LoadStats
from servelab.measure.run_files import PlaceFacts, RunManifest, RunStatus
from servelab.measure.server import CandidateFailed
from servelab.metrics.capacity import CapacityStep, capacity_values, is_saturated
from servelab.metrics.definitions import RunData, round_values
from servelab.metrics.tables import schemas
from servelab.metrics.tables.io import by_round, record_array
from servelab.metrics.timeline import Delay, delay_of, under_load


def place_of(manifest: RunManifest) -> PlaceFacts:
    """Where the run was measured."""
    others = manifest.other_nodes
    devices = [*manifest.devices, *(device for node in others for device in node.devices)]
    machines = [manifest.machine, *(node.machine for node in others)]
    cpus = [machine.cpu_settings or CpuSettings() for machine in machines]
    settings = [device.settings for device in devices if device.settings is not None]
    used = manifest.placement.devices if manifest.placement else []
    is_whole_machine = any(device.key == KEY for device in used)
    return PlaceFacts(
        accelerator=_all(device.name for device in devices),
        driver=_all(device.driver for device in devices),
        runtime=_all(each.runtime for each in settings),
        mig_mode=_all(each.mig_mode for each in settings),
        ecc_mode=_all(each.ecc_mode for each in settings),
        power_limit=_all(_number(each.power_limit_w) for each in settings),
        core_clock=_all(_number(each.clock_core_mhz) for each in settings),
        memory_clock=_all(_number(each.clock_memory_mhz) for each in settings),
        cpu=_all(machine.cpu for machine in machines),
        cpus=_all(_number(machine.cpus) for machine in machines),
        cpus_usable=_all(_number(machine.cpus_usable) for machine in machines) if is_whole_machine else None,
        kernel=_all(machine.kernel for machine in machines),
        **{name: _all(getattr(cpu, name) for cpu in cpus) for name in CpuSettings.model_fields},
    )


def _all(values: Iterable[str | None]) -> str | None:
    """The value that all devices or nodes share, or all values; None if none has one."""
    return "; ".join(sorted({value for value in values if value is not None})) or None


def _number(value: float | None) -> str | None:
    return None if value is None else f"{value:g}"


@dataclass
class Outcome:
    """Results of one attempt at a run."""

    attempts: int = 0
    """How many there were, with this one; 0 if nothing was sent."""
    disturbed: str | None = None
    """The disturbance; None if there was none."""

    records: list[pa.Table] = field(default_factory=list)
    telemetry: list[pa.Table] = field(default_factory=list)
    client_rounds: list[LoadStats] = field(default_factory=list)
    answers: list[pa.Table] = field(default_factory=list)
    """Texts of the answers, of a run that keeps them (schemas.RUN_ANSWERS)."""
    failure: CandidateFailed | None = None
    steps: list[CapacityStep] = field(default_factory=list)
    """Of a search for capacity: what each step showed; `records` are then those of the load that holds, as round 0."""
    step_records: list[pa.Table] = field(default_factory=list)
    """Records of all its steps, each as a round."""
    step_telemetry: list[pa.Table] = field(default_factory=list)
    """Telemetry of all its steps, likewise."""
    not_sent: str | None = None
    """Why nothing was sent: the server is saturated."""
    manifest: RunManifest | None = None
    """None until the attempt has ended."""
    start_id: str | None = None
    """The last server start of the attempt."""
    served_by: list[str] = field(default_factory=list)
    """The server start that served each round."""
    startup_s: float | None = None
    """Seconds until the last server start was healthy; None if it never was."""
    logs_from: dict[Path, int] = field(default_factory=dict)
    """Each log of the visit, one per node → its bytes before the attempt's first server start."""

    def table(self) -> pa.Table:
        """Records of all rounds, of `schemas.RUN_REQUESTS`."""
        return pa.concat_tables([schemas.RUN_REQUESTS.empty_table(), *self.records])

    def telemetry_table(self) -> pa.Table:
        """Telemetry of all rounds, of `schemas.TELEMETRY`."""
        return pa.concat_tables([schemas.TELEMETRY.empty_table(), *self.telemetry])

    def data(self, spec: RunSpec) -> RunData:
        """The data from which the run's metrics are computed."""
        return RunData(
            self.table(), spec.slos, self.telemetry_table(), capacity=capacity_values(spec.capacity, self.steps)
        )

    def saturated(self, spec: RunSpec) -> bool:
        """Whether the server could not keep up with the rate that it was sent; never in a closed loop."""
        if spec.protocol.request_rate == "inf":
            return False
        if self.failure is not None:
            return self.failure.reason in ("saturated", "round_timeout")
        return any(map(is_saturated, by_round(record_array(self.table())).values()))

    def delay(self) -> Delay | None:
        """How long the run waited for CPUs that others had, under load; None without telemetry of that.

        Of a round that failed before its load, as in the warm-up, all telemetry counts.
        """
        records = record_array(pa.concat_tables(self.step_records) if self.step_records else self.table())
        telemetry = record_array(
            pa.concat_tables(self.step_telemetry) if self.step_telemetry else self.telemetry_table()
        )
        loaded = under_load(records, telemetry)
        if self.failure is not None:
            loaded = np.concatenate([loaded, telemetry[~np.isin(telemetry["round"], records["round"])]])
        return delay_of(loaded)


def write_run(folder: Path, spec: RunSpec, outcome: Outcome, started_at: datetime, **accounts: Any) -> RunStatus:
    """Writes the files of a finished run, and last `status.json`, which seals them; returns the status.

    `accounts` are further values of the status: the job, and what its devices are.
    """
    assert outcome.manifest is not None
    ended = status(spec, outcome, started_at, **accounts)
    spec.write(folder / "spec.json")
    outcome.manifest.write(folder / "manifest.json")
    pq.write_table(outcome.table(), folder / "requests.parquet")
    pq.write_table(outcome.telemetry_table(), folder / "telemetry.parquet")
    if spec.capacity is not None:
        steps = pa.concat_tables([schemas.RUN_REQUESTS.empty_table(), *outcome.step_records])
        pq.write_table(steps, folder / "steps.parquet")
    if spec.keeps_answers:
        answers = pa.concat_tables([schemas.RUN_ANSWERS.empty_table(), *outcome.answers])
        pq.write_table(answers, folder / "answers.parquet")
    for log, start in outcome.logs_from.items():
        printed = "".join(f"{line}\n" for line in lines_at_ends(log, start))
        (folder / log.name).write_text(without_credentials(printed))
    for left in filter(Path.is_dir, folder.iterdir()):  # a client's folder that could not be removed earlier
        shutil.rmtree(left, ignore_errors=True)
    sealed = ended.model_copy(update={"seal": seal_of(folder, ended.model_dump(mode="json"))})
    sealed.write(folder / "status.json")
    return sealed


def status(spec: RunSpec, outcome: Outcome, started_at: datetime, **accounts: Any) -> RunStatus:
    """The status of a run that has ended now."""
    records, failure, delay = outcome.table(), outcome.failure, outcome.delay()
    failed = records.num_rows - records["error"].null_count
    has_speed = not (failure or outcome.not_sent or spec.keeps_answers)
    ends = [pc.max(table["end_s"]).as_py() or 0.0 for table in outcome.step_records or outcome.records]
    return RunStatus(
        run_id=run_id(spec),
        outcome="failed" if failure else "saturated" if outcome.not_sent else "ok",
        reason=failure.reason if failure else "saturated" if outcome.not_sent else None,
        message=without_credentials(failure.message) if failure else outcome.not_sent or failed_requests(records),
        log_lines=without_credentials("\n".join(failure.log_lines)).splitlines() if failure else [],
        rounds=len(outcome.records),
        requests=records.num_rows,
        requests_failed=failed,
        success_rate=1 - failed / records.num_rows if records.num_rows else 0.0,
        objective_rounds=round_values(outcome.data(spec), spec.objective) if has_speed else [],
        steps=outcome.steps,
        client_rounds=outcome.client_rounds,
        server_starts=None if outcome.manifest and outcome.manifest.endpoint else len(set(outcome.served_by)),
        start_id=outcome.start_id,
        attempts=outcome.attempts,
        place=outcome.manifest and place_of(outcome.manifest),
        disturbed=outcome.disturbed,
        others_percent=delay.others_percent if outcome.disturbed and delay else None,
        startup_s=outcome.startup_s,
        load_s=sum(ends),
        started_at=started_at.isoformat(timespec="seconds"),
        finished_at=datetime.now(UTC).isoformat(timespec="seconds"),
        **accounts,
    )


def check_served(result: LoadResult, spec: RunSpec) -> None:
    """Raises `CandidateFailed` for a round without a valid speed.

    That is a round that hit its time limit, was ended because of saturation, or had no successful request.
    """
    records = result.records
    failures = failed_requests(records)
    if failures is None:
        return
    if result.stats.saturated:
        most = spec.protocol.saturation_in_flight
        raise CandidateFailed("saturated", f"{most} requests were in flight, the server cannot keep up: {failures}")
    if out_of_time(result, spec):
        raise CandidateFailed("round_timeout", f"not finished in {spec.protocol.round_timeout_s:g} s: {failures}")
    if records["error"].null_count == 0:
        raise CandidateFailed("requests_failed", failures)


def out_of_time(result: LoadResult, spec: RunSpec) -> bool:
    """Whether a round was ended by its time limit."""
    return float(pc.max(result.records["end_s"]).as_py() or 0.0) >= 0.999 * spec.protocol.round_timeout_s


def failed_requests(records: pa.Table) -> str | None:
    """The number of failed requests and the most common reason, as text; None if all succeeded."""
    errors = [error for error in records["error"].to_pylist() if error is not None]
    if not errors:
        return None
    common, count = Counter(errors).most_common(1)[0]
    return f"{len(errors)} of {records.num_rows} requests failed, {count} of them: {common[:300]}"
