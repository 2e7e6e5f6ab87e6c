"""Measures one run: lease devices, serve, warm up, put the load on, stop, write. The only part that holds a device.

What the candidate does wrong is a *finding*: it is written down and the measuring ends well. What the place does wrong
is an `Outage`: nothing is written, and the run is measured another time.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from servelab import schemas
from servelab.clients import CLIENTS, LoadResult
from servelab.engines import ENGINES, Engine, Serve
from servelab.errors import ConfigError, Outage
from servelab.files import write_json
from servelab.identity import run_id
from servelab.lease import Lease, lease
from servelab.load import LoadPlan
from servelab.manifest import make_manifest
from servelab.metrics import RunData, round_values
from servelab.processes import Supervised, stop_all, wait_any
from servelab.runtimes import Environment
from servelab.server import CandidateFailed, Server
from servelab.spec import RoundsSpec, RunSpec
from servelab.statistics import relative_half_width_percent

_CLIENT_SLACK_S = 60.0
"""What a client may need beyond the round: its start, and writing its records."""
_LOG_LINES = 12


@dataclass
class Outcome:
    """What a run has given so far."""

    records: list[pa.Table] = field(default_factory=list)
    failure: CandidateFailed | None = None
    accelerator_s: float = 0.0
    manifest: dict[str, Any] = field(default_factory=dict)
    startup_s: float | None = None

    def table(self) -> pa.Table:
        """Records of all rounds, of `schemas.RUN_REQUESTS`."""
        return pa.concat_tables([schemas.RUN_REQUESTS.empty_table(), *self.records])


def measure(spec: RunSpec, environment: Environment, model_json: Path, requests: Path, output: Path) -> dict[str, Any]:
    """Measures a run into the folder `output`, whose name must be its id; returns its status.

    The folder appears complete or not at all. Raises `ConfigError` on a folder of another run, `Outage` on a broken
    environment, a full disk or a lost client.
    """
    _check(spec, environment, output)
    for path in (model_json, requests):
        if not path.is_file():
            raise ConfigError(f"{path}: no such file")
    work = output.with_name(f".{output.name}.part")
    try:
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        started_at = datetime.now(UTC)
        outcome = _measure(spec, environment, model_json, requests, work)
        status = _status(spec, outcome, started_at)
        write_json(work / "spec.json", spec.model_dump(mode="json"))
        write_json(work / "manifest.json", outcome.manifest)
        pq.write_table(outcome.table(), work / "requests.parquet")
        write_json(work / "status.json", status)
        _publish(work, output)
        return status
    except OSError as error:
        raise Outage(f"cannot keep the results of {output.name}: {error}") from error
    finally:
        stop_all()
        shutil.rmtree(work, ignore_errors=True)


def _check(spec: RunSpec, environment: Environment, output: Path) -> None:
    if output.name != run_id(spec):
        raise ConfigError(f"{output}: this specification's run is {run_id(spec)}; results go under their own name")
    if environment.engine != spec.engine.name or environment.lock_sha256 != spec.engine.environment_sha256:
        raise ConfigError(f"the run asks for {spec.engine.name} by another lock than the environment was built from")
    if environment.engine_version != spec.engine.version:
        found = f"the environment has {spec.engine.name} {environment.engine_version}"
        raise ConfigError(f"{found}, the run asks for {spec.engine.version}; raise the study's version or the lock")
    if CLIENTS.get(spec.client.name).version != spec.client.version:
        raise ConfigError(f"the run asks for client {spec.client.name} {spec.client.version}, which is not this one")


def _measure(spec: RunSpec, environment: Environment, model_json: Path, requests: Path, work: Path) -> Outcome:
    engine = ENGINES.get(spec.engine.name)
    model = json.loads(model_json.read_bytes())
    serve = Serve(
        python=environment.python,
        model_path=(model_json.parent / model["path"]).absolute(),
        model_name=spec.model.id,
        port=0,
        options=spec.options,
        arguments=spec.arguments,
        count=spec.hardware.count,
    )
    outcome = Outcome()
    with lease(spec.hardware.device, spec.hardware.count) as leased:
        leased_at = time.monotonic()
        server = Server(
            engine,
            serve,
            variables={**leased.environment, **spec.environment_variables},
            log=work / "server.log",
            startup_timeout_s=spec.protocol.startup_timeout_s,
            keep_open=leased.descriptors,
        )
        try:
            _rounds(spec, engine, server, leased, requests, work, outcome)
        except CandidateFailed as failure:
            _check_disk(work)
            failure.log_lines = failure.log_lines or server.tail(_LOG_LINES)
            outcome.failure = failure
        except Outage:
            print("\n".join(server.tail(_LOG_LINES)), file=sys.stderr)
            _check_disk(work)
            raise
        finally:
            server.stop()
        outcome.accelerator_s = (time.monotonic() - leased_at) * spec.hardware.count
    outcome.startup_s = server.startup_s
    outcome.manifest = make_manifest(
        spec,
        environment=environment,
        devices=leased.devices,
        command=server.launch.command,
        variables=server.launch.variables,
        model=model,
        requests=requests,
    )
    return outcome


def _check_disk(work: Path) -> None:
    """Raises `Outage` on a full disk: what failed then says nothing about the candidate."""
    if not shutil.disk_usage(work).free:
        raise Outage(f"no space is left for {work}")


def _rounds(
    spec: RunSpec, engine: Engine, server: Server, leased: Lease, requests: Path, work: Path, outcome: Outcome
) -> None:
    """Rounds until the protocol is content; raises `CandidateFailed` with the rounds so far in `outcome`."""
    _say(f"serving {spec.model.id} with {spec.engine.name} on {', '.join(d.name for d in leased.devices)}")
    for number in range(spec.protocol.rounds.max):
        server.reset_caches()  # the first time, this starts it
        plan = _plan(spec, engine, server, requests, number)
        if spec.protocol.warmup_requests:
            warmup = {
                "phase": "warmup",
                "limit": spec.protocol.warmup_requests,
                "settle_requests": 0,
                "request_rate": "inf",
                "arrivals": "poisson",
                "ramp_up_s": 0.0,
                "saturation_in_flight": None,
            }
            check_served(_load(spec, server, plan.model_copy(update=warmup), work).records, spec)
        result = _load(spec, server, plan, work)
        outcome.records.append(result.records)
        check_served(result.records, spec)
        values = round_values(RunData(outcome.table(), spec.slos), spec.objective)
        _say(f"round {number}: {spec.objective} {values[-1]:.1f}" if values else f"round {number}")
        if enough(spec.protocol.rounds, values):
            return


def _plan(spec: RunSpec, engine: Engine, server: Server, requests: Path, number: int) -> LoadPlan:
    return LoadPlan(
        base_url=server.base_url,
        endpoint=spec.workload.parameters["endpoint"],
        model=spec.model.id,
        requests=requests.absolute(),
        round=number,
        settle_requests=spec.protocol.settle_requests,
        request_rate=spec.protocol.request_rate,
        arrivals=spec.protocol.arrivals,
        burstiness=spec.protocol.burstiness,
        ramp_up_s=spec.protocol.ramp_up_s,
        max_concurrency=spec.protocol.max_concurrency,
        duration_s=spec.protocol.duration_s,
        saturation_in_flight=spec.protocol.saturation_in_flight,
        processes=spec.protocol.client_processes,
        seed=spec.workload.parameters.get("seed", 0),
        timeout_s=spec.protocol.round_timeout_s,
        request_timeout_s=spec.protocol.round_timeout_s,
        body=dict(engine.request_body),
    )


def enough(rounds: RoundsSpec, values: list[float]) -> bool:
    """Whether the objective's values, one a round, are certain enough to stop before the last round."""
    if rounds.until_ci95_below_percent is None or len(values) < rounds.min:
        return False
    return relative_half_width_percent(values) < rounds.until_ci95_below_percent


def _load(spec: RunSpec, server: Server, plan: LoadPlan, work: Path) -> LoadResult:
    """Runs the client once and reads what it wrote; `CandidateFailed` if the server ends meanwhile."""
    client = CLIENTS.get(spec.client.name)
    folder, log = work / "client", work / "client.log"
    folder.mkdir()
    assert server.process is not None
    command = client.command(plan, folder, Path(sys.executable))
    running = Supervised(command, environment=os.environ, log=log, grace_s=2.0)
    try:
        wait_any([running, server.process], plan.timeout_s + _CLIENT_SLACK_S)
        server.check_alive()
        if (returncode := running.poll()) is None:
            raise Outage(f"the load client did not end {_CLIENT_SLACK_S:g} s after the round's time was over")
    finally:
        running.stop()
    if returncode:
        said = log.read_text(encoding="utf-8", errors="replace").strip()[-500:]
        raise Outage(f"the load client failed: {said or f'exit code {returncode}'}")
    result = client.read(plan, folder)
    shutil.rmtree(folder)
    log.unlink()
    return result


def check_served(records: pa.Table, spec: RunSpec) -> None:
    """Raises `CandidateFailed` if a round ran into its time limit or none of its requests succeeded."""
    said = _failed_requests(records)
    if said is None:
        return
    if (pc.max(records["end_s"]).as_py() or 0.0) >= 0.999 * spec.protocol.round_timeout_s:
        raise CandidateFailed("round_timeout", f"not finished in {spec.protocol.round_timeout_s:g} s: {said}")
    if records["error"].null_count == 0:
        raise CandidateFailed("requests_failed", said)


def _failed_requests(records: pa.Table) -> str | None:
    """How many requests failed and the most common reason; None if all succeeded."""
    errors = [error for error in records["error"].to_pylist() if error is not None]
    if not errors:
        return None
    common, count = Counter(errors).most_common(1)[0]
    return f"{len(errors)} of {records.num_rows} requests failed, {count} of them: {common[:300]}"


def _status(spec: RunSpec, outcome: Outcome, started_at: datetime) -> dict[str, Any]:
    records, failure = outcome.table(), outcome.failure
    failed = records.num_rows - records["error"].null_count
    ends = [pc.max(table["end_s"]).as_py() or 0.0 for table in outcome.records]
    return {
        "run_id": run_id(spec),
        "outcome": "failed" if failure else "ok",
        "reason": failure.reason if failure else None,
        "message": failure.message if failure else _failed_requests(records),
        "log_lines": failure.log_lines if failure else [],
        "rounds": len(outcome.records),
        "requests": records.num_rows,
        "requests_failed": failed,
        "success_rate": 1 - failed / records.num_rows if records.num_rows else 0.0,
        "startup_s": outcome.startup_s,
        "load_s": sum(ends),
        "accelerator_s": outcome.accelerator_s,
        "started_at": started_at.isoformat(timespec="seconds"),
        "finished_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _publish(work: Path, output: Path) -> None:
    """Gives the finished folder its name in one step; what an unfinished attempt left there goes first."""
    shutil.rmtree(output, ignore_errors=True)
    work.rename(output)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
