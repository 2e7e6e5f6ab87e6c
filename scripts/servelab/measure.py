"""Measures one run: lease devices, serve, warm up, put the load on, stop, write. The only part that holds a device.

What the candidate does wrong is a *finding*: it is written down and the measuring ends well. What the place does wrong
is an `Outage`: nothing is written, and the run is measured another time.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from servelab.errors import ConfigError
from servelab.files import write_json
from servelab.identity import run_id
from servelab.lease import lease
from servelab.run_folder import make_once
from servelab.session import Outcome, RunInputs, Session, say, status
from servelab.spec import RoundsSpec
from servelab.statistics import relative_half_width_percent


def measure(inputs: RunInputs, output: Path) -> dict[str, Any]:
    """Measures a run into the folder `output`, whose name must be its id; returns its status.

    The folder appears complete or not at all, and a complete one is kept: a run that another workflow is measuring is
    waited for. Raises `ConfigError` on a folder of another run, `Outage` on a broken environment, a full disk or a lost
    client.
    """
    if output.name != run_id(inputs.spec):
        raise ConfigError(
            f"{output}: this specification's run is {run_id(inputs.spec)}; results go under their own name"
        )
    inputs.check()

    def work_in(folder: Path) -> None:
        started_at = datetime.now(UTC)
        write_run(folder, inputs, _measure(inputs, folder), started_at)

    return make_once(output, work_in)


def _measure(inputs: RunInputs, work: Path) -> Outcome:
    hardware, rounds = inputs.spec.hardware, inputs.spec.protocol.rounds
    with lease(hardware.device, hardware.count) as leased:
        leased_at = time.monotonic()
        say(f"serving {inputs.spec.model.id} with {inputs.spec.engine.name} on {leased.names}")
        session = Session(inputs, leased, work)
        try:
            for _ in range(rounds.max):
                values = session.round()
                if session.outcome.failure or enough(rounds, values):
                    break
        finally:
            session.stop()
        outcome = session.finish()
        outcome.accelerator_s = (time.monotonic() - leased_at) * hardware.count
    return outcome


def enough(rounds: RoundsSpec, values: list[float]) -> bool:
    """Whether the objective's values, one a round, are certain enough to stop before the last round."""
    if rounds.until_ci95_below_percent is None or len(values) < rounds.min:
        return False
    return relative_half_width_percent(values) < rounds.until_ci95_below_percent


def write_run(folder: Path, inputs: RunInputs, outcome: Outcome, started_at: datetime) -> dict[str, Any]:
    """Writes a run's files, `status.json` last; returns the status."""
    content = {
        **status(inputs, outcome),
        "started_at": started_at.isoformat(timespec="seconds"),
        "finished_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    write_json(folder / "spec.json", inputs.spec.model_dump(mode="json"))
    write_json(folder / "manifest.json", outcome.manifest)
    pq.write_table(outcome.table(), folder / "requests.parquet")
    pq.write_table(outcome.telemetry_table(), folder / "telemetry.parquet")
    write_json(folder / "status.json", content)
    return content
